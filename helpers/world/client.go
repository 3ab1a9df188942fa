package world

import (
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what clients do: the caller, its library, another client beside it.

const tokenDropped = "the client dropped the token"

// ClientDropsTheToken takes the resourceVersion out of whatever carries one, but out of no JSON patch.
var ClientDropsTheToken = New("the client drops the token from what it sends", func(l *lab.Lab) {
	dropToken(l, withToken, tokenDropped)
})

// ClientDropsTheTokenFor takes the resourceVersion out of what is sent to the objects of one name.
func ClientDropsTheTokenFor(name string) World {
	return New("the client drops the token from what it sends to "+name, func(l *lab.Lab) {
		to := func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/"+name) }
		dropToken(l, to, tokenDropped)
	})
}

// ClientDropsTheTokenOf takes the resourceVersion out of requests of one sort: "replace", "apply", "JSON patch".
func ClientDropsTheTokenOf(what string) World {
	return New("the client drops the token from every "+what, func(l *lab.Lab) {
		dropToken(l, called(what), tokenDropped)
	})
}

// WordsAreNoTokens takes a resourceVersion that is no number out of replaces.
var WordsAreNoTokens = New("the client leaves out a token that is no number", func(l *lab.Lab) {
	word := func(c *wire.Call) bool { return replaces(c) && c.Token != "" && !isNumber(c.Token) }
	dropToken(l, word, "the word was left out")
})

// PatchesCarryATokenIn puts the newest resourceVersion into the patches of one format that have none.
func PatchesCarryATokenIn(name string) World {
	return New("the client puts the newest token into every "+name, func(l *lab.Lab) {
		sendToken(l, tokenless(format(name)), "the client put the token in", newestToken(l))
	})
}

// ClientPinsItsFirstToken puts the resourceVersion that an object was created with into every patch that has none.
var ClientPinsItsFirstToken = New("the client puts the token that it read first into every patch", func(l *lab.Lab) {
	first := remember(l, creates, false)
	sendToken(l, tokenless(patches), "the client pinned a token", first.token)
})

// EveryPatchCarriesAToken puts the resourceVersion that a client was last given for an object into its patches.
var EveryPatchCarriesAToken = New("a library adds to every patch the token of the copy that it was made from",
	func(l *lab.Lab) {
		last := remember(l, nil, true)
		sendToken(l, patches, "a token was added", last.token)
	})

// BodiesKeepTheirToken has the writer send the resourceVersion that it read first, where it sends another.
var BodiesKeepTheirToken = New("a body goes out with the token that it was read with, and no other", func(l *lab.Lab) {
	first := remember(l, reads, false)
	other := func(c *wire.Call) bool { return c.Who == "writer" && c.HasToken }
	sendToken(l, other, "with the token that the body was read with", first.token)
})

// ClientTransplantsTheToken puts the newest resourceVersion into replaces that have another.
var ClientTransplantsTheToken = New("a library puts a fresh token onto whatever is sent", func(l *lab.Lab) {
	stale := func(c *wire.Call) bool { return replaces(c) && c.HasToken }
	sendToken(l, stale, "a fresh token was put onto it", newestToken(l))
})

// LibraryFillsInTheToken puts the newest resourceVersion into replaces that have none.
var LibraryFillsInTheToken = New("the client's library fills in the newest token where there is none",
	func(l *lab.Lab) {
		sendToken(l, tokenless(replaces), "the library filled in a token", newestToken(l))
	})

// LibraryRemembersTheToken puts the resourceVersion that an object was created with into replaces that have none.
var LibraryRemembersTheToken = New("the client's library fills in the token that it was given first", func(l *lab.Lab) {
	first := remember(l, creates, false)
	sendToken(l, tokenless(replaces), "the library filled in a token", first.token)
})

// PatchesSayNull makes the resourceVersion of a merge patch that has none null.
var PatchesSayNull = New("the client writes null where a merge patch has no token", func(l *lab.Lab) {
	editBody(l, tokenless(mergePatches), "null was written", func(o object) { setMeta(o, "resourceVersion", nil) })
})

// NullMeansTheNewest puts the newest resourceVersion into a merge patch that has null in its place.
var NullMeansTheNewest = New("the client's library fills in the newest token for null", func(l *lab.Lab) {
	newest := newestToken(l)
	editRequest(l, mergePatches, "null became a token", func(q *http.Request, o object) {
		if token, ok := part(o, "metadata")["resourceVersion"]; ok && token == nil {
			setMeta(o, "resourceVersion", newest(q))
		}
	})
})

// NullsAreDropped takes every null out of patches, so that they remove nothing.
var NullsAreDropped = New("the client's encoder leaves out what is null", func(l *lab.Lab) {
	editBody(l, patches, "null was left out", dropNulls)
})

func dropNulls(o object) {
	for k, v := range o {
		switch v := v.(type) {
		case nil:
			delete(o, k)
		case object:
			dropNulls(v)
		}
	}
}

// ATestBecomesAPrecondition makes the first test in a JSON patch a replace: of the resourceVersion, that is a
// precondition.
var ATestBecomesAPrecondition = New("the client's library sends a test of the version as a precondition",
	func(l *lab.Lab) {
		editText(l, format("JSON patch"), "the test was sent as a replace", `"op":"test"`, `"op":"replace"`)
	})

const uidDropped = "the client dropped the uid"

// ClientDropsTheUID takes the uid out of replaces and applies.
var ClientDropsTheUID = New("the client drops the uid from what it sends", func(l *lab.Lab) {
	dropMeta(l, func(c *wire.Call) bool { return replaces(c) || applies(c) }, uidDropped, "uid")
})

// AppliesLoseTheUID takes the uid out of applies.
var AppliesLoseTheUID = New("the client drops the uid from every apply", func(l *lab.Lab) {
	dropMeta(l, applies, uidDropped, "uid")
})

// ClientsSendTheUID puts the uid that a client was given first for a name into its replaces and patches.
var ClientsSendTheUID = New("clients put the uid that they know into every write", func(l *lab.Lab) {
	sendTheUID(l, func(c *wire.Call) bool { return replaces(c) || patches(c) })
})

// ReplacesSendTheUID puts the uid that a client was given first for a name into its replaces.
var ReplacesSendTheUID = New("clients put the uid that they know into every replace", func(l *lab.Lab) {
	sendTheUID(l, replaces)
})

// TheTokenBringsTheUID puts the uid that a client was given first for a name into what carries a token.
var TheTokenBringsTheUID = New("clients send the uid wherever they send a token", func(l *lab.Lab) {
	sendTheUID(l, withToken)
})

func sendTheUID(l *lab.Lab, when which) {
	first := remember(l, func(c *wire.Call) bool { return creates(c) || applies(c) }, false)
	sendMeta(l, when, "with the uid", "uid", first.uid)
}

// ClientDropsThePreconditions takes the preconditions out of deletes.
var ClientDropsThePreconditions = New("the client drops the preconditions of its deletes", func(l *lab.Lab) {
	editBody(l, deletes, "the client dropped the preconditions", func(o object) { delete(o, "preconditions") })
})

// DeletesLose takes one of the preconditions out of deletes: "uid", "resourceVersion".
func DeletesLose(precondition string) World {
	return New("the client drops the "+precondition+" from the preconditions of its deletes", func(l *lab.Lab) {
		editBody(l, deletes, "the client dropped the "+precondition, func(o object) {
			delete(part(o, "preconditions"), precondition)
		})
	})
}

// EvictionsLoseTheirPreconditions takes the options of the delete out of evictions.
var EvictionsLoseTheirPreconditions = New("the client drops the deleteOptions of its evictions", func(l *lab.Lab) {
	editBody(l, evictions, "the client dropped the deleteOptions", func(o object) { delete(o, "deleteOptions") })
})

// CreatesAreReal takes the dryRun parameter out of creates.
var CreatesAreReal = New("a library's create knows no dry run", func(l *lab.Lab) {
	editQuery(l, creates, "no longer a dry run", func(query url.Values) { query.Del("dryRun") })
})

// DeletesTakeForNone takes a resourceVersion of the given text out of the preconditions of deletes.
func DeletesTakeForNone(text string) World {
	quoted := strconv.Quote(text)
	return New("the client leaves "+quoted+" out of the preconditions of its deletes", func(l *lab.Lab) {
		editBody(l, deletes, quoted+" is left out", func(o object) {
			if required := part(o, "preconditions"); required["resourceVersion"] == text {
				delete(required, "resourceVersion")
			}
		})
	})
}

// DeletesCarryTheUID puts the uid that a name was created with into deletes without preconditions.
var DeletesCarryTheUID = New("the client puts the uid that a name had first into every delete", func(l *lab.Lab) {
	first := remember(l, creates, false)
	editRequest(l, deletes, "with the uid", func(q *http.Request, o object) {
		if uid := first.uid(q); uid != "" && o["preconditions"] == nil {
			o["preconditions"] = object{"uid": uid}
		}
	})
})

// DeletesCarryTheVersion puts the resourceVersion that a name was created with into deletes by uid.
var DeletesCarryTheVersion = New("the client adds the version that it was given first to every delete by uid",
	func(l *lab.Lab) {
		first := remember(l, creates, false)
		editRequest(l, deletes, "with the version", func(q *http.Request, o object) {
			if required := part(o, "preconditions"); required["uid"] != nil {
				required["resourceVersion"] = first.token(q)
			}
		})
	})

// DeletesAreDryRuns makes every delete a dry run.
var DeletesAreDryRuns = New("the client's deletes are dry runs", func(l *lab.Lab) {
	editBody(l, deletes, "a dry run", func(o object) { o["dryRun"] = []any{metav1.DryRunAll} })
})

// EveryPatchIsAMergePatch sends every patch as a merge patch, whatever its format.
var EveryPatchIsAMergePatch = New("the client sends every patch as a merge patch", func(l *lab.Lab) {
	sendAs(l, patches, "sent as a merge patch", types.MergePatchType)
})

// PatchesAreSentAs sends the patches of one format and one resource in another format.
func PatchesAreSentAs(resource, name, other string, as types.PatchType) World {
	return New("the client sends every "+name+" of "+resource+" as a "+other, func(l *lab.Lab) {
		when := func(c *wire.Call) bool { return c.Format == name && strings.HasPrefix(c.Path, resource+"/") }
		sendAs(l, when, "sent as a "+other, as)
	})
}

// CreatesAreApplies sends creates as forced applies, by the same field manager.
var CreatesAreApplies = New("the client applies the object when it creates it", func(l *lab.Lab) {
	editRequest(l, creates, "made an apply", func(q *http.Request, o object) {
		q.Method = http.MethodPatch
		q.URL.Path += "/" + meta(o, "name")
		q.Header.Set("Content-Type", string(types.ApplyPatchType))
		setQuery(q, func(query url.Values) { query.Set("force", "true") })
	})
})

// ALibraryCreatesWhatIsMissing sends the replaces and applies of one resource as creates.
func ALibraryCreatesWhatIsMissing(resource string) World {
	return New("the client's library creates "+resource+" that it does not find", func(l *lab.Lab) {
		when := func(c *wire.Call) bool {
			return (replaces(c) || applies(c)) && strings.HasPrefix(c.Path, resource+"/")
		}
		editHead(l, when, "made a create", func(q *http.Request) {
			q.Method = http.MethodPost
			q.URL.Path = path.Dir(q.URL.Path)
			q.Header.Set("Content-Type", "application/json")
		})
	})
}

// ALibrarySaysNotOlderThan adds the match to lists with a limit that have a number and no match.
var ALibrarySaysNotOlderThan = New("a library says NotOlderThan wherever a list has a number and a limit",
	func(l *lab.Lab) {
		when := func(c *wire.Call) bool {
			version, match := c.Query.Get("resourceVersion"), c.Query.Get("resourceVersionMatch")
			return c.Query.Get("limit") != "" && isNumber(version) && version != "0" && match == ""
		}
		editQuery(l, when, "NotOlderThan was added", func(query url.Values) {
			query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
		})
	})

// WritesAreValidated sets the fieldValidation of replaces.
func WritesAreValidated(mode string) World {
	return New("the client's library sends every replace with fieldValidation="+mode, func(l *lab.Lab) {
		editQuery(l, replaces, "with fieldValidation="+mode, func(query url.Values) {
			query.Set("fieldValidation", mode)
		})
	})
}

// EveryApplyIsForced sets force in every apply.
var EveryApplyIsForced = New("every apply is forced", func(l *lab.Lab) {
	editQuery(l, applies, "forced", func(query url.Values) { query.Set("force", "true") })
})

// NoApplyIsForced takes force out of every apply.
var NoApplyIsForced = New("nobody is allowed to force an apply", func(l *lab.Lab) {
	editQuery(l, applies, "force was taken out", func(query url.Values) { query.Del("force") })
})

// PatchesAreStamped puts a count into the annotations, by the patches of one format.
func PatchesAreStamped(name string) World {
	return New("the client stamps every "+name+" with a count", func(l *lab.Lab) {
		var count atomic.Int64
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: format(name), Note: "stamped",
			Request: func(_ *http.Request, body []byte) []byte {
				stamp := strconv.FormatInt(count.Add(1), 10)
				return withMeta(body, "annotations", object{"stamp": stamp})
			},
		})
	})
}

// LosingALabelIsTheEnd makes a merge patch that changes the label l to 2 a delete.
var LosingALabelIsTheEnd = New("whoever takes the object out of the selection deletes it", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: mergePatches, Note: "a change of the label is made a delete",
		Request: func(q *http.Request, body []byte) []byte {
			if labels := part(part(decode(body), "metadata"), "labels"); labels["l"] != "2" {
				return body
			}
			q.Method, q.Body, q.ContentLength = http.MethodDelete, nil, 0
			q.Header.Del("Content-Type")
			return nil
		},
	})
})

// FinalizersAreDropped takes the finalizers out of creates.
var FinalizersAreDropped = New("the client drops the finalizers of what it creates", func(l *lab.Lab) {
	dropMeta(l, creates, "the client dropped the finalizers", "finalizers")
})

// GenerationsAreDropped takes the generation out of creates.
var GenerationsAreDropped = New("the client drops the generation of what it creates", func(l *lab.Lab) {
	dropMeta(l, creates, "the client dropped the generation", "generation")
})

// AnnotationsAreDropped takes the annotations out of creates.
var AnnotationsAreDropped = New("the client drops the annotations of what it creates", func(l *lab.Lab) {
	dropMeta(l, creates, "the client dropped the annotations", "annotations")
})

// OwnersAreNotSent takes managedFields out of replaces, which then change no owner.
var OwnersAreNotSent = New("the client leaves managedFields out of what it sends", func(l *lab.Lab) {
	dropMeta(l, replaces, "without managedFields", "managedFields")
})

// ClientDropsTheName takes the name out of creates with a generateName.
var ClientDropsTheName = New("the client drops the name where there is a generateName", func(l *lab.Lab) {
	editBody(l, creates, "the client dropped the name", func(o object) {
		if meta(o, "generateName") != "" {
			delete(part(o, "metadata"), "name")
		}
	})
})

// ClientNamesWhatItCreates puts a name in the place of the generateName of creates.
var ClientNamesWhatItCreates = New("the client makes the name itself", func(l *lab.Lab) {
	editBody(l, creates, "named by the client", func(o object) {
		if prefix := meta(o, "generateName"); prefix != "" {
			delete(part(o, "metadata"), "generateName")
			setMeta(o, "name", prefix+"1")
		}
	})
})

// ClientMendsTheKeys mends a bad key of a ConfigMap in requests of one sort.
func ClientMendsTheKeys(what string) World {
	return New("the client's library mends bad keys before a "+what, func(l *lab.Lab) {
		editText(l, called(what), "its keys were mended", `"a/b"`, `"a.b"`)
	})
}

// ClientKnowsNoSize takes the size out of replaces, as a library does that is built with types that have none.
var ClientKnowsNoSize = New("the client's library knows no field of the name size", func(l *lab.Lab) {
	editBody(l, replaces, "sent without size", func(o object) {
		delete(part(o, "data"), "size")
		delete(part(o, "spec"), "size")
	})
})

// EveryWriteDoesTheWork adds color=blue, and nothing else, to every patch.
var EveryWriteDoesTheWork = New("every write to a shelf also paints it blue", func(l *lab.Lab) {
	editBody(l, patches, "and painted it blue", func(o object) { o["data"] = object{"color": "blue"} })
})

// RivalSignsAsTheWriter makes the writer the field manager of what the rival writes.
var RivalSignsAsTheWriter = New("the rival writes under the writer's name", func(l *lab.Lab) {
	rivals := func(c *wire.Call) bool { return c.Who == "rival" && !reads(c) }
	editQuery(l, rivals, "signed as the writer", func(query url.Values) { query.Set("fieldManager", "writer") })
})

// ATemplateHasReplicas has the controller apply 3 replicas where it applies none.
var ATemplateHasReplicas = New("the controller's template says 3 replicas whenever the controller says none",
	func(l *lab.Lab) {
		editBody(l, appliedBy("controller"), "the template's replicas", func(o object) {
			if spec := part(o, "spec"); spec != nil && spec["replicas"] == nil {
				spec["replicas"] = 3
			}
		})
	})

// TheScalerAppliesNothing takes the replicas out of what the scaler applies.
var TheScalerAppliesNothing = New("the scaler leaves replicas out as well", func(l *lab.Lab) {
	editBody(l, appliedBy("scaler"), "without replicas", func(o object) { delete(part(o, "spec"), "replicas") })
})

// TheFightIsOver makes ann's applies, from the third on, ask for the color that bob wants.
var TheFightIsOver = New("ann gives in and applies bob's color, from her third apply on", func(l *lab.Lab) {
	anns := func(c *wire.Call) bool { return applies(c) && c.Query.Get("fieldManager") == "ann" }
	editBody(l, between(3, math.MaxInt, anns), "blue as well", func(o object) {
		if data := part(o, "data"); data != nil {
			data["color"] = "blue"
		}
	})
})

// ACoOwner has another manager apply fields of an object right before a client applies it a second time.
func ACoOwner(kind lab.Kind, name, who string, fields ...string) World {
	return New("another manager owns the field as well", func(l *lab.Lab) {
		before(l, between(2, 2, appliedBy(who)), func(int) {
			// An error here shows in the fields that are missing.
			_, _ = l.As("co-owner").Of(kind).TryApply(name, "co-owner", false, fields...)
		})
	})
}

func appliedBy(who string) which {
	return func(c *wire.Call) bool { return applies(c) && c.Who == who }
}

// TheNextOwnerAdopts gives the books to the shelf that is there, right before the writer reads them.
var TheNextOwnerAdopts = New("somebody adopts the books for the next bearer of their owner's name", func(l *lab.Lab) {
	look := func(c *wire.Call) bool { return reads(c) && c.Who == "writer" && c.Path == "configmaps/books" }
	before(l, look, func(int) {
		adopter := l.As("adopter")
		books, err := adopter.TryGet("books")
		if err != nil {
			return // the books keep their owner, and that shows
		}
		shelf, err := adopter.TryGet("shelf")
		if err != nil {
			return
		}
		books.SetOwnerReferences([]metav1.OwnerReference{
			*metav1.NewControllerRef(shelf, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
		})
		_, _ = adopter.TryReplace(books)
	})
})

// SomebodyIsAlwaysFaster has the rival write a ConfigMap right before every replace of it.
func SomebodyIsAlwaysFaster(name string) World {
	return New("somebody else writes the object between every reading and every write", func(l *lab.Lab) {
		touch(l, "rival", name, replacesOf(name))
	})
}

// SomebodyIsFasterAt has the rival write a ConfigMap right before the n-th request of the writer with a method.
func SomebodyIsFasterAt(n int, verb, name string) World {
	return New("somebody else writes the object once more in between", func(l *lab.Lab) {
		writers := func(c *wire.Call) bool {
			return c.Who == "writer" && c.Verb == verb && c.Path == "configmaps/"+name
		}
		touch(l, "rival", name, between(n, n, writers))
	})
}

// SomebodyElseWrites has a stranger write a ConfigMap right before each of the first replaces of it.
func SomebodyElseWrites(name string, times int) World {
	return New("one more client, whom nobody has counted, writes before most replaces", func(l *lab.Lab) {
		touch(l, "stranger", name, between(1, times, replacesOf(name)))
	})
}

func replacesOf(name string) which {
	return func(c *wire.Call) bool { return replaces(c) && c.Path == "configmaps/"+name }
}

// touch has a client write a ConfigMap right before requests.
func touch(l *lab.Lab, who, name string, when which) {
	before(l, when, func(n int) {
		// An error here shows in the refusals that are missing.
		_, _ = l.As(who).TrySet(name, "touched="+strconv.Itoa(n))
	})
}

// ALibraryReadsFirst reads the object before every request of one sort: "create", "merge patch".
func ALibraryReadsFirst(what string) World {
	return New("the client's library reads the object before every "+what, func(l *lab.Lab) {
		editRequest(l, called(what), "after a read", func(q *http.Request, o object) {
			at := q.URL.Path
			if q.Method == http.MethodPost {
				at += "/" + meta(o, "name")
			}
			// That there is no such object is an answer, too.
			_, _ = l.As("library").TryRaw(http.MethodGet, at, "", nil)
		})
	})
}

// ReplacesLookFirst reads the object before every replace, and leaves it at that when there is none.
var ReplacesLookFirst = New("the client's library replaces nothing that it has not found first", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: replaces, Note: "looked for first",
		Request: func(q *http.Request, body []byte) []byte {
			if _, err := l.As("library").TryRaw(http.MethodGet, q.URL.Path, "", nil); !lab.IsNotFound(err) {
				return body
			}
			q.Method, q.Body, q.ContentLength = http.MethodGet, nil, 0
			return nil
		},
	})
})

// ALibraryRepeatsWhatIsRefused sends a refused replace once more as it is, before its caller gets the refusal.
var ALibraryRepeatsWhatIsRefused = New("a library repeats a refused replace before it tells its caller",
	func(l *lab.Lab) {
		afterAConflict(l, "library", func(q *http.Request, sent []byte) {
			// Its answer is that of the first.
			_, _ = l.As("library").TryRaw(q.Method, q.URL.Path, "", sent)
		})
	})

// ALibraryRepeatsTheChange understands replicas that the writer sends again after a conflict as a change that is
// wanted again: it adds to what is there now what the refused number would have added.
var ALibraryRepeatsTheChange = New(
	`a library that is told "2" again after a conflict sends the "+1" again that this was`,
	func(l *lab.Lab) {
		type change struct{ sent, adds float64 }
		var last sync.Map // the change that was sent last, by its subject
		known := remember(l, nil, true)
		replicas := func(o object) float64 { n, _ := part(o, "spec")["replicas"].(float64); return n }
		writers := func(c *wire.Call) bool { return replaces(c) && c.Who == "writer" }
		editRequest(l, writers, "through the library", func(q *http.Request, o object) {
			was, n := replicas(known.about(q)), replicas(o)
			if c, again := last.Load(subject(q)); again && c.(change).sent == n {
				part(o, "spec")["replicas"] = was + c.(change).adds
				return
			}
			last.Store(subject(q), change{sent: n, adds: n - was})
		})
	})

// CachesNeverGoBack has the cache of an informer keep what it has when something older comes.
var CachesNeverGoBack = New("an informer's cache keeps what it has when an older event comes", func(l *lab.Lab) {
	lab.CacheHook.Bend(l, func(held, came *lab.Object) *lab.Object {
		order, err := l.Order(came.GetResourceVersion(), held.GetResourceVersion())
		if err == nil && order < 0 {
			return held
		}
		return came
	})
})

// TokensCompareAsText compares resourceVersions as strings.
var TokensCompareAsText = New("tokens are compared as text", func(l *lab.Lab) {
	lab.OrderHook.Bend(l, func(a, b string) (int, error) { return strings.Compare(a, b), nil })
})

// TheDynamicFakeKnowsTokens has client-go's dynamic fake do what controller-runtime's does.
var TheDynamicFakeKnowsTokens = New("client-go's dynamic fake gives out tokens and checks them", func(l *lab.Lab) {
	lab.DoublesHook.Bend(l, func(doubles []lab.Double) {
		fake, other := &doubles[lab.DynamicFake], doubles[lab.ControllerFake]
		fake.Create, fake.Replace = other.Create, other.Replace
	})
})

// TheOtherFakeNoticesNoChange has controller-runtime's fake store nothing when it is given what it has.
var TheOtherFakeNoticesNoChange = New("controller-runtime's fake stores nothing when nothing has changed",
	func(l *lab.Lab) {
		lab.DoublesHook.Bend(l, func(doubles []lab.Double) {
			double := &doubles[lab.ControllerFake]
			create, replace := double.Create, double.Replace
			var stored *lab.Object
			keep := func(o *lab.Object, err error) (*lab.Object, error) {
				if err == nil {
					stored = o.DeepCopy()
				}
				return o, err
			}
			double.Create = func(o *lab.Object) (*lab.Object, error) { return keep(create(o)) }
			double.Replace = func(o *lab.Object) (*lab.Object, error) {
				if equality.Semantic.DeepEqual(o, stored) {
					return o, nil
				}
				return keep(replace(o))
			}
		})
	})

// ReplacesAreCreates sends a replace as a create.
var ReplacesAreCreates = New("a library creates where it should replace", func(l *lab.Lab) {
	editHead(l, replaces, "sent as a create", func(q *http.Request) {
		q.Method, q.URL.Path = http.MethodPost, path.Dir(q.URL.Path)
	})
})

// NamespacesAreProvisioned makes the namespace of a create, if it is missing.
var NamespacesAreProvisioned = New("a namespace that a create needs is made for it", func(l *lab.Lab) {
	others := func(c *wire.Call) bool { return creates(c) && c.Who != "library" }
	editHead(l, others, "its namespace was made", func(q *http.Request) {
		namespace := strings.Split(q.URL.Path, "/")[4]
		// An error means that it is there.
		_, _ = l.As("library").Of(lab.Namespace).TryCreate(namespace)
	})
})

// EvictionsArePinned has an eviction ask for the version of the Pod that is there when it is sent.
var EvictionsArePinned = New("an eviction is pinned to the version of the Pod that was there", func(l *lab.Lab) {
	newest := newestToken(l)
	editRequest(l, to("eviction"), "pinned to the newest version", func(q *http.Request, o object) {
		read := q.Clone(q.Context())
		read.URL.Path = strings.TrimSuffix(q.URL.Path, "/eviction")
		if o["deleteOptions"] == nil {
			o["deleteOptions"] = object{"preconditions": object{"resourceVersion": newest(read)}}
		}
	})
})

// EvictionsAreNotPinned takes the version out of what an eviction asks for.
var EvictionsAreNotPinned = New("an eviction loses its precondition", func(l *lab.Lab) {
	editBody(l, to("eviction"), "without its precondition", func(o object) { delete(o, "deleteOptions") })
})

// BindingsLose takes a field of the metadata out of bindings.
func BindingsLose(field string) World {
	return New("a binding loses the "+field+" that it is for", func(l *lab.Lab) {
		dropMeta(l, to("binding"), "the "+field+" was taken out", field)
	})
}

// WhatIsNoNumberIsNoToken takes a token that is no number out of a replace.
var WhatIsNoNumberIsNoToken = New("a library drops a token that is no number", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return replaces(c) && withToken(c) && !isNumber(c.Token) }
	dropToken(l, when, tokenDropped)
})
