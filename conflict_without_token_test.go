// Chapter 2, continued: writes without a token.
package modrev

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestCF6_AReplaceWithoutATokenOverwritesUnlessTheKindForbidsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6", From: "D2 paragraph 2",
		Says: "a replace without a token overwrites whatever is there, where the kind allows it; of other kinds it is " +
			"422 Invalid",
		Why: "that it works does not make it right: what a custom resource refuses silently loses updates of a " +
			"ConfigMap",
		Do:      "Send the token with a replace of every kind, also where none is demanded.",
		FalseIf: world.AProxyMergesReplaces.Shows(`the rival's annotation of the ConfigMap is yes`),
		AlsoFalseIf: []world.World{
			world.LibraryFillsInTheToken.Shows(`what is refused is none`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowUnconditionalUpdate"),
		Answers: "#33",
	}, func(l *lab.Lab) {
		custom := l.CustomResource()
		kinds := append(validKinds(l), custom)
		var objects []*lab.Object
		for i, kind := range kinds {
			objects = append(objects, l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i)))
		}
		definition := l.Of(lab.CustomResourceDefinition).Get(custom.Resource + "." + custom.Group)
		kinds, objects = append(kinds, lab.CustomResourceDefinition), append(objects, definition)

		var overwritten, refused []string
		answers := map[string]error{}
		for i, kind := range kinds {
			l.Rival().Of(kind).Set(objects[i].GetName(), "metadata.annotations.rival=yes")
			stored, err := l.Of(kind).TryReplace(lab.WithToken(objects[i], ""), "metadata.labels.mine=yes")
			if err == nil {
				overwritten = append(overwritten, kind.Kind)
				l.Equal("the rival's annotation of the "+kind.Kind, stored.GetAnnotations()["rival"], "")
				continue
			}
			refused = append(refused, kind.Kind)
			answers[kind.Kind] = err
			l.Refused(err, "a replace without a token of a "+kind.Kind, lab.Refusal{
				Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
				Causes: []string{"FieldValueInvalid metadata.resourceVersion"},
			})
		}

		l.Say("200, and what the rival wrote is gone, for %d kinds: %s.", len(overwritten), strings.Join(overwritten, ", "))
		l.Say("422 Invalid for %s. Shelf is a custom resource; kinds that are not named here were not tried.",
			strings.Join(refused, ", "))
		l.Say("The Lease: %s", l.Describe(answers["Lease"]))

		l.Equal("what is refused", refused, []string{
			"Lease", "PodDisruptionBudget", "RuntimeClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
			"CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment", "Shelf", "CustomResourceDefinition",
		})
	})
}

func TestCF6b_AReplaceOfWhatIsMissingIsRefusedUnlessTheKindCreatesIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6b", From: "D2 paragraph 5; +",
		Says: "a replace of what does not exist is 404 for most kinds; a few kinds are created by it, whatever old token " +
			"it carries",
		Why: "if you rely on 404 to learn of a deletion, you resurrect a Lease; a PUT that is to create fails " +
			"with a ConfigMap",
		Do:      "Send the uid in a replace that must not bring a deleted object back.",
		FalseIf: world.ServerCreatesWhatIsMissing.Shows(`what is created is .*, ConfigMap, `),
		AlsoFalseIf: []world.World{
			world.ReplacesLookFirst.Shows(`^what is created is none$`),
			world.ReplacesSendTheUID.Shows(`the answer for a deleted Lease is 409 Conflict`),
			world.ClientDropsTheUID.Shows(`the answer for a deleted Lease with the uid is 201`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowCreateOnUpdate"),
		Answers: "#38",
	}, func(l *lab.Lab) {
		var created, missing []string
		shown := map[string]wire.Requests{}
		custom := l.CustomResource()
		// A kind without a create by PUT refuses before it looks at the body, so that any body will do for most.
		for i, kind := range append(replaceableKinds(l), custom) {
			client := l.Of(kind)
			var err error
			shown[kind.Kind] = l.Record(func() {
				_, err = client.TryReplace(client.New(fmt.Sprintf("%s-%d", l.Namespace, i)))
			})
			if err == nil {
				created = append(created, kind.Kind)
				continue
			}
			missing = append(missing, kind.Kind)
			l.Refused(err, "a replace of a missing "+kind.Kind,
				lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		}
		l.Say("These are all kinds that kube-apiserver says it serves, and Shelf, a custom resource.")
		l.Say("404 NotFound for %d kinds: %s.", len(missing), strings.Join(missing, ", "))
		l.Say("201 Created for %d kinds: %s.", len(created), strings.Join(created, ", "))
		l.Show("PUT of a ConfigMap", shown["ConfigMap"])
		l.Show("PUT of a Lease", shown["Lease"])
		l.Equal("what is created", created, []string{
			"ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role", "RoleBinding",
			"RuntimeClass", "Service",
		})

		kinds := map[string]lab.Kind{}
		for _, k := range append(lab.SampleKinds(), custom) {
			kinds[k.Kind] = k
		}
		table := l.Table("replace of what was deleted", "with the old token", "with the uid as well")
		for _, c := range []struct{ kind, token, uid string }{
			{"ConfigMap", "404 NotFound", "404 NotFound"},
			{"Deployment", "404 NotFound", "404 NotFound"},
			{"Shelf", "404 NotFound", "404 NotFound"},
			{"Lease", "201", "409 Conflict"},
			{"Role", "201", "409 Conflict"},
			{"Service", "201", "409 Conflict"},
		} {
			token, uid := replacesAfterADelete(l, kinds[c.kind])
			table.Row(c.kind, token, uid)
			l.Equal("the answer for a deleted "+c.kind, token, c.token)
			l.Equal("the answer for a deleted "+c.kind+" with the uid", uid, c.uid)
		}
		table.End()
	})
}

// replacesAfterADelete are the answers to a replace of what was deleted: with the old token, and with the uid as well.
func replacesAfterADelete(l *lab.Lab, kind lab.Kind) (token, uid string) {
	c := l.Of(kind)
	replace := func(o *lab.Object) string {
		_, _ = c.TryReplace(o) // what came of it, success or refusal, is the answer
		return l.Answered()
	}
	o := c.Create("deleted")
	c.Delete("deleted")
	token = replace(lab.WithoutUID(o))
	if token == "201" {
		c.Delete("deleted")
	}
	return token, replace(o)
}

func TestCF6c_ToCreateByAReplaceOrAnApplyTakesTheRightToCreate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6c", From: "+",
		Says: "a replace or an apply that would create takes the right to create: without it, the answer is 403",
		Why: "a role with update and patch alone works until the object is deleted, and then fails with a 403 that looks " +
			"like a lost right",
		Do:      "Grant create beside update and patch to whatever may have to bring objects back.",
		FalseIf: everybodyMayCreate.Shows(`an apply of a missing ConfigMap by the editor was accepted`),
		AlsoFalseIf: []world.World{
			world.StatusGoesToTheObject.Shows(`an apply of a missing Deployment's status was refused: 422`),
			nobodyMayCreate.Shows(`an apply of a missing ConfigMap by the owner was refused: 403 Forbidden`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "withAuthorization"),
	}, func(l *lab.Lab) {
		editor := userWhoMay(l, "editor", "get", "update", "patch")
		owner := userWhoMay(l, "owner", "get", "update", "patch", "create")
		table := l.Table("request", "by", "answer")
		forbidden := lab.Refusal{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		missing := lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}

		for _, c := range []struct {
			request string
			send    func(by *lab.Client) error
		}{
			{"an apply of a missing ConfigMap", func(by *lab.Client) error {
				return errorOf(by.TryApply("shelf", "ann", false))
			}},
			{"a replace of a missing Lease", func(by *lab.Client) error {
				leases := by.Of(lab.Lease)
				return errorOf(leases.TryReplace(leases.New("lock")))
			}},
		} {
			err := c.send(editor)
			table.Row(c.request, "editor: get, update, patch", lab.AnswerLine(err))
			l.Refused(err, c.request+" by the editor", forbidden)
			err = c.send(owner)
			table.Row(c.request, "owner: create as well", l.Answered())
			l.Accepted(err, c.request+" by the owner")
		}
		_, err := l.Of(lab.Deployment).Sub("status").TryApply("shelf", "ann", false)
		table.Row("an apply of a missing Deployment's status", "an administrator", lab.AnswerLine(err))
		l.Refused(err, "an apply of a missing Deployment's status", missing)
		services := l.Of(lab.Kind{Kind: "Service", Version: "v1", Resource: "services",
			Base: map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "shelf.example"}}})
		_, err = services.Sub("status").TryReplace(services.New("shelf"))
		table.Row("a replace of a missing Service's status", "an administrator", l.Answered())
		l.Equal("the answer to a replace of a missing Service's status", l.Answered(), "201")
		l.Accepted(err, "a replace of a missing Service's status")
		table.End()
		l.Say("Through its /status a missing Deployment does not come back. A Service does: a replace of its /status " +
			"creates it, spec included.")
	})
}

// everybodyMayCreate gives the right to create to every role with the right to patch.
var everybodyMayCreate = world.New("the right to patch includes the right to create", func(l *lab.Lab) {
	rolesSay(l, `"patch"`, `"patch","create"`)
})

// nobodyMayCreate takes the right to create out of every role.
var nobodyMayCreate = world.New("no role has the right to create", func(l *lab.Lab) {
	rolesSay(l, `"create"`, `"watch"`)
})

// rolesSay has roles be created with other rights.
func rolesSay(l *lab.Lab, old, other string) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost && c.Path == "roles" }, Note: "with other rights",
		Request: func(_ *http.Request, body []byte) []byte { return bytes.Replace(body, []byte(old), []byte(other), 1) },
	})
}

// validKinds are the kinds of [lab.SampleKinds] and more, each with the least that the API accepts. Nothing in a
// control plane without controllers acts upon them.
func validKinds(l *lab.Lab) []lab.Kind {
	type m = map[string]any
	const (
		admission, rbac  = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
		storage, network = "storage.k8s.io", "networking.k8s.io"
		driver           = "shelf.example"
	)
	more := []lab.Kind{
		{Kind: "Endpoints", Resource: "endpoints"},
		{Kind: "Event", Resource: "events", Base: m{"involvedObject": m{"namespace": l.Namespace}}},
		{Kind: "IngressClass", Group: network, Resource: "ingressclasses", Cluster: true,
			Base: m{"spec": m{"controller": driver + "/none"}}},
		{Kind: "ClusterRoleBinding", Group: rbac, Resource: "clusterrolebindings", Cluster: true,
			Base: m{"roleRef": m{"apiGroup": rbac, "kind": "ClusterRole", "name": "shelf"}}},
		{Kind: "RuntimeClass", Group: "node.k8s.io", Resource: "runtimeclasses", Cluster: true, Base: m{"handler": "shelf"}},
		{Kind: "MutatingWebhookConfiguration", Group: admission, Resource: "mutatingwebhookconfigurations", Cluster: true},
		{Kind: "ValidatingWebhookConfiguration", Group: admission, Resource: "validatingwebhookconfigurations",
			Cluster: true},
		{Kind: "CSIDriver", Group: storage, Resource: "csidrivers", Cluster: true, Base: m{"spec": m{}}},
		{Kind: "CSINode", Group: storage, Resource: "csinodes", Cluster: true, Base: m{"spec": m{"drivers": []any{}}}},
		{Kind: "CSIStorageCapacity", Group: storage, Resource: "csistoragecapacities",
			Base: m{"storageClassName": "shelf"}},
		{Kind: "VolumeAttachment", Group: storage, Resource: "volumeattachments", Cluster: true, Base: m{"spec": m{
			"attacher": driver, "nodeName": "shelf", "source": m{"persistentVolumeName": "shelf"}}}},
		{Kind: "ResourceClaim", Group: "resource.k8s.io", Resource: "resourceclaims", Base: m{"spec": m{}}},
	}
	for i := range more {
		more[i].Version = "v1"
	}
	return append(lab.SampleKinds(), more...)
}

// userWhoMay is a user who has the given rights to everything in the lesson's namespace. It waits until kube-apiserver
// goes by them.
func userWhoMay(l *lab.Lab, name string, verbs ...any) *lab.Client {
	user := l.AsUser(name)
	defer l.Wire.Tape().Pause()()
	granter := l.As("granter")
	role := lab.Kind{Kind: "Role", Group: rbacv1.GroupName, Version: "v1", Resource: "roles", Base: map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": verbs}}}}
	granter.Of(role).Create(name)
	binding := lab.Kind{Kind: "RoleBinding", Group: rbacv1.GroupName, Version: "v1", Resource: "rolebindings",
		Base: map[string]any{
			"subjects": []any{map[string]any{"kind": rbacv1.UserKind, "apiGroup": rbacv1.GroupName, "name": name}},
			"roleRef":  map[string]any{"kind": "Role", "apiGroup": rbacv1.GroupName, "name": name}}}
	granter.Of(binding).Create(name)
	admin, err := kubernetes.NewForConfig(granter.Config())
	require.NoError(l, err, "making a client for reviews")
	l.Until(name+" may act", func() (bool, error) {
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: l.Namespace, Verb: fmt.Sprint(verbs[0]), Resource: "configmaps",
			},
		}}
		got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(l.Context(), &review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed, err
	})
	return user
}

// replaceableKinds are the kinds that kube-apiserver says it serves to be created and replaced, in the version that it
// prefers, without custom resources. Those of validKinds come with what makes an object valid, the others with nothing.
func replaceableKinds(l *lab.Lab) []lab.Kind {
	valid := map[schema.GroupVersionKind]lab.Kind{}
	for _, kind := range validKinds(l) {
		valid[kind.GVK()] = kind
	}
	defer l.Wire.Tape().Pause()()
	api, err := discovery.NewDiscoveryClientForConfig(l.As("discovery").Config())
	require.NoError(l, err, "making a client for discovery")
	served, err := api.ServerPreferredResourcesWithContext(l.Context())
	if !discovery.IsGroupDiscoveryFailedError(err) { // the custom resources of other lessons may go at any time
		require.NoError(l, err, "asking kube-apiserver what it serves")
	}
	kinds := map[string]lab.Kind{} // by name: events are served in two groups and are the same objects
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"create", "update"}}, served) {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(l, err, "reading what kube-apiserver serves")
		for _, r := range list.APIResources {
			kind := lab.Kind{Kind: r.Kind, Group: of.Group, Version: of.Version, Resource: r.Name, Cluster: !r.Namespaced}
			_, known := kinds[r.Kind]
			if known || strings.HasSuffix(of.Group, ".modrev.example") {
				continue
			}
			if with, ok := valid[kind.GVK()]; ok {
				kind = with
			}
			kinds[r.Kind] = kind
		}
	}
	return slices.SortedFunc(maps.Values(kinds), func(a, b lab.Kind) int { return cmp.Compare(a.Kind, b.Kind) })
}

func TestCF15_IfMatchMeansNothingHere(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF15", From: "+",
		Says: "the header If-Match means nothing to the apiserver: it neither refuses what is fresh nor protects what " +
			"carries no token",
		Why:     "what every HTTP handbook teaches compiles, answers 200, and checks nothing",
		Do:      "Put the precondition into the body: metadata.resourceVersion, or a delete's preconditions.",
		FalseIf: world.IfMatchIsTheToken.Shows(`a replace with the current token, If-Match: "nonsense" was refused`),
		AlsoFalseIf: []world.World{
			world.IfMatchStandsIn.Shows(`a replace without a token, If-Match: the stale version was refused`),
			world.IfMatchComesFirst.Shows(`a replace with a stale token, If-Match: the current version was accepted`),
			ifMatchHoldsForPatches.Shows(`a merge patch, If-Match: the stale version was refused: 409`),
			ifMatchHoldsForDeletes.Shows(`a delete, If-Match: the stale version was refused: 409`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "UpdateResource"),
		Answers: "#3",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		now := l.Rival().Set("shelf", "color=blue")
		table := l.Table("request", "with", "If-Match", "answer")
		replace := func(with, match string, o *lab.Object) error {
			_, err := l.WithHeader("If-Match", strconv.Quote(match)).TryReplace(o, "color=green")
			table.Row("replace", with, strconv.Quote(match), lab.AnswerLine(err))
			return err
		}

		err := replace("the current token", "nonsense", now)
		l.Accepted(err, `a replace with the current token, If-Match: "nonsense"`)
		err = replace("no token", read.GetResourceVersion(), lab.WithToken(read, ""))
		l.Accepted(err, "a replace without a token, If-Match: the stale version")
		err = replace("a stale token", l.Peek("shelf").GetResourceVersion(), read)
		l.Refused(err, "a replace with a stale token, If-Match: the current version", lab.Stale(read))

		stale := strconv.Quote(read.GetResourceVersion())
		client := l.WithHeader("If-Match", stale)
		_, err = client.TrySet("shelf", "color=black")
		table.Row("merge patch", "no token", stale, lab.AnswerLine(err))
		l.Accepted(err, "a merge patch, If-Match: the stale version")
		err = client.TryDelete("shelf", metav1.DeleteOptions{})
		table.Row("delete", "no preconditions", stale, lab.AnswerLine(err))
		l.Accepted(err, "a delete, If-Match: the stale version")
		table.End()
	})
}

// ifMatchHoldsForPatches makes If-Match the token of a patch.
var ifMatchHoldsForPatches = world.New("the server honors If-Match in a patch", func(l *lab.Lab) {
	honorIfMatch(l, http.MethodPatch, `{"metadata":{"resourceVersion":%s}}`)
})

// ifMatchHoldsForDeletes makes If-Match the precondition of a delete.
var ifMatchHoldsForDeletes = world.New("the server honors If-Match in a delete", func(l *lab.Lab) {
	honorIfMatch(l, http.MethodDelete, `{"preconditions":{"resourceVersion":%s}}`)
})

// honorIfMatch gives requests with one method another body, with what If-Match says in it.
func honorIfMatch(l *lab.Lab, verb, body string) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == verb }, Note: "If-Match was taken for the token",
		Request: func(q *http.Request, sent []byte) []byte {
			if match := q.Header.Get("If-Match"); match != "" {
				return fmt.Appendf(nil, body, match)
			}
			return sent
		},
	})
}
