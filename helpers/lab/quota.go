package lab

import (
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var resourceQuota = Kind{Kind: "ResourceQuota", Version: "v1", Resource: "resourcequotas", Fields: "spec"}

// LimitConfigMaps makes a ResourceQuota named "quota" in the lesson's namespace, or changes it: hard
// ConfigMaps are allowed, and used are said to exist (no controller counts them here). It returns the key of
// the quota in etcd, once kube-apiserver's admission goes by the new numbers.
func (l *Lab) LimitConfigMaps(hard, used int) (key string) {
	l.open()
	defer l.Wire.Tape().Pause()()
	const name = "quota"
	if _, err := l.quiet().Of(resourceQuota).TryCreate(name); !apierrors.IsAlreadyExists(err) {
		l.Step(err, "creating a quota")
	}
	// A create is let in both under a quota with room and when admission has not seen the quota yet. So it is used up
	// first: that shows.
	l.limitConfigMaps(name, used, used)
	if hard != used {
		l.limitConfigMaps(name, hard, used)
	}
	return resourceQuota.KeyOf(l.Namespace, name)
}

func (l *Lab) limitConfigMaps(name string, hard, used int) {
	quotas := l.quiet().Of(resourceQuota)
	spec := fmt.Sprintf(`{"spec":{"hard":{"count/configmaps":"%d"}}}`, hard)
	_, err := quotas.TryPatch(name, types.MergePatchType, spec)
	l.Step(err, "setting the quota")
	status := fmt.Sprintf(`{"status":{"hard":{"count/configmaps":"%d"},"used":{"count/configmaps":"%d"}}}`, hard, used)
	_, err = quotas.Sub("status").TryPatch(name, types.MergePatchType, status)
	l.Step(err, "setting what the quota says is used")

	l.Until("admission goes by the quota", func() (bool, error) {
		_, err := l.quiet().TryDryCreate(l.New("probe"))
		if err != nil && !apierrors.IsForbidden(err) {
			return false, err
		}
		return (err == nil) == (used < hard), nil
	})
}

// CountedConfigMaps is how many ConfigMaps the quota that LimitConfigMaps made says there are.
func (l *Lab) CountedConfigMaps() int {
	quota, err := l.quiet().Of(resourceQuota).TryGet("quota")
	l.Step(err, "reading the quota")
	used, _, err := unstructured.NestedString(quota.Object, "status", "used", "count/configmaps")
	l.Step(err, "reading what the quota says is used")
	n, err := strconv.Atoi(used)
	l.Step(err, "reading what the quota says is used")
	return n
}
