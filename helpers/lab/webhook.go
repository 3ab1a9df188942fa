package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Admission is what an admission webhook of a lesson is asked about, and how it answers. It is asked about requests in
// the
// lesson's own namespace only.
type Admission struct {
	// Name tells it apart from other webhooks of the lesson. Mutating ones are asked in the order of their names.
	Name string
	// Mutating webhooks may change what they judge; the others are validating.
	Mutating bool
	// Operations and Resources select the requests; none means CREATE, UPDATE and DELETE, of ConfigMaps.
	Operations []string
	Resources  []string // with a subresource after a slash: "pods/eviction"
	// FailsOpen has kube-apiserver go on when the webhook cannot be asked (failurePolicy Ignore).
	FailsOpen bool
	// Reinvoke has kube-apiserver ask again when a later webhook has changed the object (reinvocationPolicy IfNeeded).
	Reinvoke bool
	// Seconds is how long kube-apiserver waits for the verdict; 0 means ten.
	Seconds int
	// Judge makes the verdict; nil admits all. It runs beside the lesson, so it uses methods that begin with Try.
	Judge func(Review) Verdict
}

// Review is one admission review: what kube-apiserver asks a webhook in one attempt at a request.
type Review struct {
	UID         types.UID // of the review
	Operation   string    // CREATE, UPDATE or DELETE
	Resource    string    // with a subresource after a slash
	Name        string    // as the request has it: "" where it names none
	Who         string    // the field manager of the request; a delete has none
	DryRun      bool
	Object, Old *Object // nil where there is none
}

// String is the review as the tape shows it.
func (r Review) String() string {
	s := strings.TrimSuffix(r.Operation+" "+r.Resource+"/"+r.Name, "/")
	if r.Old != nil {
		s += ", old object " + r.Old.GetResourceVersion()
	}
	if r.DryRun {
		s += ", a dry run"
	}
	return s
}

// Verdict is the answer to a review. The zero value admits the request as it is.
type Verdict struct {
	Denied *metav1.Status // refuses the request
	Patch  string         // a JSON patch for the object
}

// String is the verdict as the tape shows it.
func (v Verdict) String() string {
	switch {
	case v.Denied != nil:
		return fmt.Sprintf("denied, %d %s", v.Denied.Code, v.Denied.Reason)
	case v.Patch != "":
		return "admitted, with a patch"
	}
	return "admitted"
}

// Webhook is an admission webhook at work.
type Webhook struct {
	lab    *Lab
	hook   Admission
	server *http.Server
	ctx    context.Context // ends with the server
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // reviews that are being answered
	probed  bool           // kube-apiserver has asked about a probe
	reviews []Review
	holds   []*HeldReview
}

// AdmissionHook is what [Lab.Webhook] changes about a webhook before it is registered: nothing.
var AdmissionHook = Hook[func(*Admission)]{func(*Admission) {}}

// Webhook serves an admission webhook until the lesson ends. It returns once kube-apiserver goes by the webhook's
// configuration, which it learns of from a watch.
func (l *Lab) Webhook(hook Admission) *Webhook {
	l.open()
	defer l.Wire.Tape().Pause()()
	AdmissionHook.in(l)(&hook)
	w := &Webhook{lab: l, hook: hook}
	w.ctx, w.cancel = context.WithCancel(l.ctx)
	url, authority := w.serve()
	w.register(url, authority)
	probe := l.New("probe")
	probe.SetLabels(map[string]string{probeLabel: w.configuration()})
	l.Until("kube-apiserver asks the webhook "+hook.Name, func() (bool, error) {
		_, err := l.quiet().TryDryCreate(probe)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.probed, err
	})
	return w
}

// Reviews are the reviews that came since Reviews was last called, in the order in which they came.
func (w *Webhook) Reviews() []Review {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.reviews
	w.reviews = nil
	return out
}

// HeldReview is a review whose verdict has been made and waits.
type HeldReview struct {
	webhook *Webhook
	when    func(Review) bool
	made    chan struct{}
	release chan struct{}
	once    sync.Once
}

// Hold makes the verdict of the next review that matches wait until Release. Only that one: later ones pass.
func (w *Webhook) Hold(when func(Review) bool) *HeldReview {
	h := &HeldReview{webhook: w, when: when, made: make(chan struct{}), release: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
	return h
}

// Made waits until the verdict has been made.
func (h *HeldReview) Made() {
	l := h.webhook.lab
	select {
	case <-h.made:
	case <-l.ctx.Done():
		l.Stuck("waiting for the verdict of the webhook "+h.webhook.hook.Name, context.Cause(l.ctx))
	}
}

// Release lets the verdict go. It may be called more than once, and before the verdict has been made.
func (h *HeldReview) Release() { h.once.Do(func() { close(h.release) }) }

// judge is what the webhook does about a review: note it, make the verdict, and keep it where it is to be held. ctx
// ends when kube-apiserver gives up waiting.
func (w *Webhook) judge(ctx context.Context, r Review) Verdict {
	tape := w.lab.Wire.Tape()
	w.mu.Lock()
	w.reviews = append(w.reviews, r)
	w.mu.Unlock()
	tape.Remark("    %s is asked about %s", w.hook.Name, r)
	var v Verdict
	if w.hook.Judge != nil {
		v = w.hook.Judge(r)
	}
	if h := w.held(r); h != nil {
		close(h.made)
		select {
		case <-h.release:
		case <-ctx.Done():
		case <-w.ctx.Done():
		}
	}
	tape.Remark("    %s: %s", w.hook.Name, v)
	return v
}

// held takes the hold for a review, nil if there is none.
func (w *Webhook) held(r Review) *HeldReview {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, h := range w.holds {
		if h.when(r) {
			w.holds = append(w.holds[:i], w.holds[i+1:]...)
			return h
		}
	}
	return nil
}

// reviewOf reads a review.
func reviewOf(q *admission.AdmissionRequest) (Review, error) {
	r := Review{
		UID: q.UID, Operation: string(q.Operation), Resource: q.Resource.Resource, Name: q.Name,
		DryRun: q.DryRun != nil && *q.DryRun,
	}
	if q.SubResource != "" {
		r.Resource += "/" + q.SubResource
	}
	var options struct{ FieldManager string }
	if len(q.Options.Raw) > 0 {
		if err := json.Unmarshal(q.Options.Raw, &options); err != nil {
			return r, fmt.Errorf("reading the options in a review: %w", err)
		}
	}
	r.Who = options.FieldManager
	for raw, o := range map[*[]byte]**Object{&q.Object.Raw: &r.Object, &q.OldObject.Raw: &r.Old} {
		if len(*raw) == 0 || string(*raw) == "null" {
			continue
		}
		*o = &Object{}
		if err := json.Unmarshal(*raw, &(*o).Object); err != nil {
			return r, fmt.Errorf("reading an object in a review: %w", err)
		}
	}
	return r, nil
}

// response is a verdict in the form of the API.
func (v Verdict) response(uid types.UID) *admission.AdmissionResponse {
	out := &admission.AdmissionResponse{UID: uid, Allowed: v.Denied == nil, Result: v.Denied}
	if v.Patch != "" {
		form := admission.PatchTypeJSONPatch
		out.Patch, out.PatchType = []byte(v.Patch), &form
	}
	return out
}
