// Chapter 4, continued: who owns a field.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT10_AnApplyOfAFieldThatAnotherOwnsIsRefusedWhileTheOwnerKeepsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10", From: "D2 paragraph 3",
		Says: "an apply that changes a field of another manager is refused with 409 and the cause " +
			"FieldManagerConflict, while that manager keeps the field",
		Why: "a stale token goes away by reading again, an owner does not; the causes tell the two faces of 409 " +
			"apart",
		Do:      "On a FieldManagerConflict change what you apply; don't retry it in place.",
		FalseIf: world.EveryApplyIsForced.Shows(`bob's apply of ann's fields was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsLoseTheirCauses.Shows(`bob's apply of ann's fields was refused: 409 Conflict: Apply failed`),
			world.ACoOwner(lab.ConfigMap, "shelf", "ann", "color=red", "size=3").Shows(
				`bob's apply once ann has let go was refused: 409 Conflict`),
			bobMergesWithoutOwners.Shows(
				`bob's apply of another key of an atomic field was accepted`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "NewConflictError"),
		Answers: "#22",
	}, func(l *lab.Lab) {
		apply := func(manager string, fields ...string) error {
			_, err := l.As(manager).TryApply("shelf", manager, false, fields...)
			return err
		}
		l.Accepted(apply("ann", "color=red", "size=3"), "ann's apply")
		l.Accepted(apply("bob", "place=hall"), "bob's apply of a field of his own")

		attempts := 0
		var err error
		sent := l.Record(func() {
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				attempts++
				return apply("bob", "place=hall", "color=blue", "size=4")
			})
		})
		for _, owner := range l.Owners(l.Peek("shelf")) {
			l.Say("%s", owner)
		}
		l.Say("bob applies place=hall, color=blue, size=4, in retry.RetryOnConflict:")
		l.Say("%d times: %s", attempts, l.Describe(err))
		for _, cause := range lab.Causes(err) {
			l.Say("cause %s: %s, field %s", cause.Type, cause.Message, cause.Field)
		}
		refusal := l.Refused(err, "bob's apply of ann's fields", owned(".data.color", ".data.size"))
		const text = "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .data.color\n- .data.size"
		l.Equal("the message", refusal.Message, text)
		l.Equal("the object that the details name", refusal.Details(), "(none)")
		l.Equal("the number of attempts", attempts, 5)
		l.Equal("the number of transactions of all attempts", sent.Count(wire.Txn), 0)

		l.Accepted(apply("ann", "place=hall"), "ann's apply without color and size")
		l.Accepted(apply("bob", "place=hall", "color=blue", "size=4"), "bob's apply once ann has let go")

		atomic := func(manager, key string) error {
			_, err := l.As(manager).Typed().AppsV1().Deployments(l.Namespace).Apply(l.Context(),
				onNodes(l, key), metav1.ApplyOptions{FieldManager: manager})
			return err
		}
		l.Accepted(atomic("ann", "disk"), "ann's apply of nodeSelector disk")
		err = atomic("bob", "zone")
		l.Refused(err, "bob's apply of another key of an atomic field", owned(".spec.template.spec.nodeSelector"))
		l.Say("Nothing was written. The details name no object, which those of a stale token do. bob can leave the two " +
			"fields to ann (OT12), take them over with force, once and by decision (OT11), or wait: once ann applied " +
			"without them, his apply was accepted.")
		l.Say("What the schema calls atomic has one owner as a whole: ann applied the key disk of a Deployment's " +
			"nodeSelector, bob the key zone, and his apply conflicts on nodeSelector.")
	})
}

// bobMergesWithoutOwners sends bob's apply of a Deployment as a merge patch.
var bobMergesWithoutOwners = world.New("bob's apply of a Deployment is sent as a merge patch", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "bob" && strings.HasPrefix(c.Path, "deployments/") },
		Note: "sent as a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", string(types.MergePatchType))
			q.URL.RawQuery = ""
			return body
		},
	})
})

// onNodes is a Deployment that is applied with one key in its nodeSelector.
func onNodes(l *lab.Lab, key string) *applyapps.DeploymentApplyConfiguration {
	shelf := shelfDeployment(l, "nodes", 0)
	shelf.Spec.Template.Spec.WithNodeSelector(map[string]string{key: "any"})
	return shelf
}

// owned is the refusal of an apply that is not forced and would change fields that others own.
func owned(fields ...string) lab.Refusal {
	refusal := lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
	for _, field := range fields {
		refusal.Causes = append(refusal.Causes, string(metav1.CauseTypeFieldManagerConflict)+" "+field)
	}
	return refusal
}

func TestOT10b_OwnersAreToldApartByManagerAndOperation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10b", From: "D2 paragraph 3; +",
		Says: "what ann created by POST she owns by Update, so her own apply conflicts with it, and leaving a field out " +
			"does not remove it",
		Why: "a tool that moves from patch to apply under its old name is two owners, until csaupgrade moves its " +
			"old entry over",
		Do:      "Move your old Update entries over before you turn to apply.",
		FalseIf: world.CreatesAreApplies.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`ann's apply of another value was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`ann's apply of another value was refused: 409 Conflict: Apply failed`),
			world.OwnersAreNotSent.Shows(`ann's apply after the upgrade was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/client-go/util/csaupgrade", "UpgradeManagedFields"),
		Answers: "#50 #51",
	}, func(l *lab.Lab) {
		configMaps := l.As("ann").Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("ann", "answer", "stored then", "owners then")
		row := func(what string) {
			answer, now := l.Answered(), l.Peek("shelf")
			stored := lab.Fields(now, "color", "size")
			for _, owner := range l.Owners(now) {
				table.Row(what, answer, stored, owner)
				what, answer, stored = "", "", ""
			}
		}
		apply := func(color string) error {
			shelf := applycore.ConfigMap("shelf", l.Namespace).WithData(map[string]string{"color": color})
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: "ann"})
			return err
		}

		shelf := &corev1.ConfigMap{Data: map[string]string{"color": "red", "size": "3"}}
		shelf.Name = "shelf"
		_, err := configMaps.Create(l.Context(), shelf, metav1.CreateOptions{FieldManager: "ann"})
		require.NoError(l, err, "ann's create")
		row("creates color=red, size=3")

		err = apply("red")
		row("applies color=red, without size")
		l.Accepted(err, "ann's apply of the value that is there")
		l.Stored(l.Peek("shelf"), "size=3")

		err = apply("blue")
		row("applies color=blue")
		refusal := l.Refused(err, "ann's apply of another value", owned(".data.color"))
		l.Expect(strings.Contains(refusal.Message, `conflict with "ann" using v1`), `the conflict is with "ann"`,
			"it is: %s", refusal.Message)

		shelf, err = configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		require.NoError(l, err, "reading the shelf")
		err = csaupgrade.UpgradeManagedFields(shelf, sets.New("ann"), "ann")
		require.NoError(l, err, "moving ann's Update entry over to Apply")
		_, err = configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{FieldManager: "ann"})
		require.NoError(l, err, "storing the new owners")
		row("csaupgrade.UpgradeManagedFields")

		err = apply("blue")
		row("applies color=blue, without size")
		table.End()
		l.Accepted(err, "ann's apply after the upgrade")
		l.Stored(l.Peek("shelf"), "color=blue", "-size")
		l.Say("The refusal: %s", refusal.Message)
	})
}

func TestOT10d_AnOwnerIsAManagerAnOperationASubresourceAndAVersion(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10d", From: "+",
		Says: "an owner is a manager with an operation, a subresource and, for an Update, an apiVersion: each " +
			"combination has its own entry",
		Why: "one controller that writes through two doors or two versions is several owners, and what one of them leaves " +
			"out the others keep",
		Do:      "Write as one manager, through one version, with one operation for each door.",
		FalseIf: everythingIsV2.Shows(`entries of ann after an update of v1 is Update autoscaling/v2`),
		AlsoFalseIf: []world.World{
			world.StatusGoesToTheObject.Shows(`entries of ann after an update of /status is .*v2$`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "BuildManagerIdentifier"),
		Answers: "#50 #51",
	}, func(l *lab.Lab) {
		autoscalers := func(version string) *lab.Client {
			return l.As("ann").Of(lab.Kind{Kind: "HorizontalPodAutoscaler", Group: "autoscaling", Version: version,
				Resource: "horizontalpodautoscalers", Fields: "spec"})
		}
		const v2 = "Update autoscaling/v2"
		table := l.Table("ann", "her entries in managedFields")
		step := func(what string, err error, want string) {
			l.Accepted(err, "ann's "+what)
			got := entries(autoscalers("v2").Peek("shelf"))
			table.Row(what, got)
			l.Equal("entries of ann after an "+what, got, want)
		}
		target := []string{"scaleTargetRef.apiVersion=apps/v1", "scaleTargetRef.kind=Deployment",
			"scaleTargetRef.name=shelf", "maxReplicas=3"}

		_, err := autoscalers("v2").TryCreate("shelf", target...)
		require.NoError(l, err, "ann's create")
		_, err = autoscalers("v2").TrySet("shelf", "maxReplicas=4")
		step("update of v2", err, v2)
		_, err = autoscalers("v1").TrySet("shelf", "minReplicas=2")
		step("update of v1", err, "Update autoscaling/v1; "+v2)
		_, err = autoscalers("v2").Sub("status").TryPatch("shelf", types.MergePatchType, `{"status":{"desiredReplicas":2}}`)
		step("update of /status", err, "Update autoscaling/v1; "+v2+"; "+v2+" /status")
		_, err = autoscalers("v2").TryApply("shelf", "ann", true, target...)
		step("apply of v2", err, "Apply autoscaling/v2; Update autoscaling/v1; "+v2+"; "+v2+" /status")
		_, err = autoscalers("v1").TryApply("shelf", "ann", true, target...)
		step("apply of v1", err, "Apply autoscaling/v1; Update autoscaling/v1; "+v2+"; "+v2+" /status")
		table.End()
		l.Say("All of them are ann. An Apply has one entry for all versions.")
	})
}

// entries are the owners of an object, without their fields, sorted.
func entries(o *lab.Object) string {
	var out []string
	for _, entry := range o.GetManagedFields() {
		text := string(entry.Operation) + " " + entry.APIVersion
		if entry.Subresource != "" {
			text += " /" + entry.Subresource
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// everythingIsV2 sends patches of v1 to v2.
var everythingIsV2 = world.New("a proxy sends every patch to one version", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch }, Note: "sent to v2",
		Request: func(q *http.Request, body []byte) []byte {
			q.URL.Path = strings.Replace(q.URL.Path, "/autoscaling/v1/", "/autoscaling/v2/", 1)
			return body
		},
	})
})

func TestOT11_ForceTakesOwnershipAndIsNoRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT11", From: "D2 paragraph 3",
		Says: "force takes a field from its manager, whose next apply conflicts: two actors who force as their " +
			"retry fight for ever",
		Why: "force answers \"who shall own this\", once and by decision; as an answer to every conflict it only " +
			"makes the fight silent",
		Do:      "Force only the fields that you have decided to own.",
		FalseIf: world.NoApplyIsForced.Shows(`bob's forced apply was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`ann's next apply was accepted`),
			world.TheFightIsOver.Shows(`writes after the fight is 3`),
			world.StoredInAnotherEncoding.Shows(`once the color is bob's is 9`),
		},
		Read: source.Decl("sigs.k8s.io/structured-merge-diff/v6/merge", "(*Updater).Apply"),
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("who does what", "answer", "color", "owner of color", "storage writes")
		apply := func(manager, color string, force bool) error {
			shelf, what := applycore.ConfigMap("shelf", l.Namespace), "leaves color out"
			if color != "" {
				shelf.WithData(map[string]string{"color": color})
				what = "applies color=" + color
			}
			if force {
				what += ", forced"
			}
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: manager, Force: force})
			answer, now := l.Answered(), l.Peek("shelf")
			table.Row(manager+" "+what, answer, lab.Field(now, "color"), l.OwnersOf(now, "color"), l.KV(now).Version)
			return err
		}
		writes := func() int64 { return l.KV(l.Peek("shelf")).Version }

		l.Accepted(apply("ann", "red", false), "ann's apply")
		l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		l.Equal("the owner of color", l.OwnersOf(l.Peek("shelf"), "color"), "bob by Apply")
		l.Refused(apply("ann", "red", false), "ann's next apply", owned(".data.color"))

		for range 2 { // both retry with force
			l.Accepted(apply("ann", "red", true), "ann's forced apply")
			l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		}
		fought := writes()
		l.Equal("the number of writes after the fight", fought, 6)

		l.Accepted(apply("ann", "", false), "ann's apply without color") // ann decides that the color is bob's
		l.Accepted(apply("bob", "blue", false), "bob's apply, not forced")
		l.Accepted(apply("ann", "", false), "ann's apply without color")
		table.End()
		l.Equal("the number of writes once the color is bob's", writes(), fought)
		l.Say("The fight ends with a decision: ann leaves color out, and from then on nothing is written any more.")
	})
}

func TestOT12_GivingAFieldUpEndsTheFight(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12", From: "D2 paragraph 3",
		Says: "when a human scales what a controller applies, the controller is refused or undoes the human, until " +
			"replicas is left out of what it applies",
		Why: "no retry can settle who is right; the manifest of the one who is not responsible must not have the " +
			"field",
		Do:      "Leave fields that somebody else decides out of what you apply.",
		FalseIf: world.EveryApplyIsForced.Shows(`the controller's apply after the human has scaled was accepted`),
		AlsoFalseIf: []world.World{
			world.NoApplyIsForced.Shows(`the controller's forced apply was refused: 409 Conflict`),
			world.ATemplateHasReplicas.Shows(`the controller's apply without replicas was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*ScaleREST).Update"),
		Answers: "#52",
	}, func(l *lab.Lab) {
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who does what", "answer", "replicas", "its owner", "writes")
		row := func(what string) {
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek("shelf")
			table.Row(what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"), l.KV(now).Version)
		}
		apply := func(what string, replicas int32, force bool) error {
			_, err := controller.Apply(l.Context(), shelfDeployment(l, "shelf", replicas),
				metav1.ApplyOptions{FieldManager: "controller", Force: force})
			row("controller applies " + what)
			return err
		}
		scale := func() error {
			scale, err := human.GetScale(l.Context(), "shelf", metav1.GetOptions{})
			require.NoError(l, err, "reading the scale")
			scale.Spec.Replicas = 5
			_, err = human.UpdateScale(l.Context(), "shelf", scale, metav1.UpdateOptions{FieldManager: "human"})
			row("human scales to 5")
			return err
		}
		shelf := l.Of(lab.Deployment).New("shelf")

		l.Accepted(apply("3", 3, false), "the controller's first apply")
		l.Accepted(scale(), "the human's scaling")
		err := apply("3", 3, false)
		refusal := l.Refused(err, "the controller's apply after the human has scaled", owned(".spec.replicas"))
		l.Accepted(apply("3, forced", 3, true), "the controller's forced apply")
		l.Stored(shelf, "replicas=3")

		l.Accepted(scale(), "the human's second scaling")
		l.Accepted(apply("no replicas", 0, false), "the controller's apply without replicas")
		l.Accepted(apply("no replicas", 0, false), "and once more")
		table.End()
		l.Stored(shelf, "replicas=5")
		l.Say("The refusal: %s", refusal.Message)
	})
}

// shelfDeployment is what a controller applies for a Deployment, without replicas if they are 0.
func shelfDeployment(l *lab.Lab, name string, replicas int32) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "shelf"}
	container := applycore.Container().WithName("c").WithImage("registry.example/shelf:1")
	spec := applyapps.DeploymentSpec().WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).
			WithSpec(applycore.PodSpec().WithContainers(container)))
	if replicas > 0 {
		spec.WithReplicas(replicas)
	}
	return applyapps.Deployment(name, l.Namespace).WithSpec(spec)
}

func TestOT12b_WhatItsOnlyOwnerLeavesOutFallsBackToTheDefault(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12b", From: "D2 paragraph 3; +",
		Says: "a field that its only owner no longer applies is removed, so replicas falls back to 1; with a second " +
			"owner it stays",
		Why:         "leaving out is not leaving alone: the new owner takes the field first, then the old one leaves it out",
		Do:          "Hand a field over: the new owner applies it before you drop it.",
		FalseIf:     world.ACoOwner(lab.Deployment, "alone", "controller", "replicas=3").Shows(`replicas=3 is stored`),
		AlsoFalseIf: []world.World{world.TheScalerAppliesNothing.Shows(`replicas=1 is stored`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "(*structuredMergeManager).Apply"),
		Answers:     "#52",
	}, func(l *lab.Lab) {
		table := l.Table("who applies what", "answer", "replicas", "owners of replicas")
		apply := func(name, who string, replicas int32) {
			what := "no replicas"
			if replicas > 0 {
				what = fmt.Sprintf("replicas: %d", replicas)
			}
			_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).Apply(l.Context(),
				shelfDeployment(l, name, replicas), metav1.ApplyOptions{FieldManager: who})
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek(name)
			table.Row(name+": "+who+" applies "+what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"))
			l.Accepted(err, who+"'s apply "+what)
		}
		apply("alone", "controller", 3)
		apply("alone", "controller", 0)
		apply("shared", "controller", 3)
		apply("shared", "scaler", 3)
		apply("shared", "controller", 0)
		table.End()
		l.Stored(l.Of(lab.Deployment).New("alone"), "replicas=1")
		l.Stored(l.Of(lab.Deployment).New("shared"), "replicas=3")
	})
}
