package lab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/wire"
)

// DefinitionHook says whether kube-apiserver goes by a changed definition as soon as it has accepted it.
var DefinitionHook Hook[bool]

// Redefine gives a custom resource of the lesson's own other versions, and waits until they are in force: until
// kube-apiserver has put a new storage with a new cache in the place of the old one. The kind is one that is served
// after that.
func (l *Lab) Redefine(k Kind, versions ...Version) {
	l.renewed(k, func() { l.redefine(k, versions) })
}

// RedefineUnseen is Redefine while kube-apiserver does not hear of it: the API has accepted the change, and the old
// definition is in force until the returned function is called, which waits until the new one is.
func (l *Lab) RedefineUnseen(k Kind, versions ...Version) (seen func()) {
	if DefinitionHook.in(l) {
		l.Redefine(k, versions...)
		return func() {}
	}
	l.session.unseen.Lock()
	frozen := l.session.wire.FreezeCommon("apiserver", CustomResourceDefinition.StoragePrefix())
	release := func() {
		if frozen != nil {
			frozen.Release()
			l.session.unseen.Unlock()
			frozen = nil
		}
	}
	l.Cleanup(release)
	revision := l.redefine(k, versions)
	l.Until("keeping the definition of "+k.qualified()+" from kube-apiserver", func() (bool, error) {
		return slices.Contains(frozen.Kept(), revision), nil
	})
	return func() { l.renewed(k, release) }
}

// redefine has the API accept other versions of a custom resource.
func (l *Lab) redefine(k Kind, versions []Version) (revision int64) {
	body, err := json.Marshal(map[string]any{"spec": k.defined(versions).Object["spec"]})
	l.Step(err, "encoding the definition of "+k.Definition())
	def := l.quiet().Of(CustomResourceDefinition).Patch(k.Definition(), types.MergePatchType, string(body))
	revision, err = strconv.ParseInt(def.GetResourceVersion(), 10, 64)
	l.Step(err, "reading the resourceVersion of "+k.Definition())
	return revision
}

// renewed has the definition of a custom resource changed, and waits until kube-apiserver goes by it.
func (l *Lab) renewed(k Kind, change func()) {
	from := l.Wire.Tape().Now()
	change()
	l.Until("kube-apiserver watches etcd for "+k.Definition()+" anew", func() (bool, error) {
		_, err := l.quiet().Of(k).TryGetOnce("", "")
		return err == nil && l.sentSince(from, func(r wire.Request) bool {
			return r.Method == wire.Watch && r.Key == k.StoragePrefix()
		}), nil
	})
}

// TryRedefine is [Lab.Redefine] where kube-apiserver may be unable to read what is stored: it waits until
// kube-apiserver has begun to, for the new storage.
func (l *Lab) TryRedefine(k Kind, versions ...Version) {
	l.begun(k, func() { l.redefine(k, versions) })
}

// ConvertBy has kube-apiserver convert a custom resource by a webhook, and waits as [Lab.TryRedefine] does.
func (l *Lab) ConvertBy(k Kind, url string) {
	body := fmt.Sprintf(`{"spec":{"conversion":{"strategy":"Webhook","webhook":{
		"conversionReviewVersions":["v1"],"clientConfig":{"url":%q}}}}}`, url)
	l.begun(k, func() { l.quiet().Of(CustomResourceDefinition).Patch(k.Definition(), types.MergePatchType, body) })
}

// begun has the definition of a custom resource changed, and waits until kube-apiserver has begun to go by it.
func (l *Lab) begun(k Kind, change func()) {
	from := l.Wire.Tape().Now()
	change()
	l.Until("kube-apiserver lists "+k.Definition()+" anew", func() (bool, error) {
		_, _ = l.quiet().Of(k).TryGetOnce("nobody", "") // the first request makes the new storage
		return l.sentSince(from, func(r wire.Request) bool {
			return (r.Method == wire.Range || r.Method == wire.RangeStream) && r.End != "" && r.Key == k.StoragePrefix()
		}), nil
	})
}

func (l *Lab) sentSince(from wire.Mark, what func(wire.Request) bool) bool {
	return slices.ContainsFunc(l.Wire.Tape().Since(from), what)
}
