package world

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what passes between a client and kube-apiserver: requests, and answers.

// TheFirst loses the first request with a method on its way to the server.
func TheFirst(verb string) World {
	return New("the first "+verb+" never reaches the server", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: method(verb), Times: 1, Note: "it never left", Refuse: wire.ErrAnswerLost,
		})
	})
}

// DryRunsAreReal takes the dryRun parameter out of requests.
var DryRunsAreReal = New("a proxy strips the dryRun parameter from writes", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return c.Query.Get("dryRun") != "" }
	editQuery(l, when, "no longer a dry run", func(query url.Values) { query.Del("dryRun") })
})

// AProxyDropsTheQueryOfDeletes takes all parameters out of deletes.
var AProxyDropsTheQueryOfDeletes = New("a proxy drops the query of deletes", func(l *lab.Lab) {
	editHead(l, deletes, "without its query", func(q *http.Request) { q.URL.RawQuery = "" })
})

// AProxyStripsTheRevision takes the resourceVersion parameters out of reads.
var AProxyStripsTheRevision = New("a proxy strips the resourceVersion parameter from reads", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return reads(c) && c.Query.Get("resourceVersion") != "" }
	editQuery(l, when, "the parameter was stripped", func(query url.Values) {
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	})
})

// AProxyListsBeforeItWatches sends a watch from a number as a list of that number.
var AProxyListsBeforeItWatches = New("a proxy lists at the number before it watches from it", func(l *lab.Lab) {
	when := func(c *wire.Call) bool {
		return c.Query.Get("watch") != "" && isNumber(c.Query.Get("resourceVersion"))
	}
	editQuery(l, when, "listed first", func(query url.Values) {
		query.Del("watch")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	})
})

// AProxyDropsBookmarks takes allowWatchBookmarks out of watches.
var AProxyDropsBookmarks = New("a proxy drops what asks for bookmarks", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return c.Query.Get("allowWatchBookmarks") != "" }
	editQuery(l, when, "bookmarks are not asked for", func(query url.Values) { query.Del("allowWatchBookmarks") })
})

// AProxyDropsTheMatchFor takes resourceVersionMatch out of the watches of one client.
func AProxyDropsTheMatchFor(who string) World {
	return New("a proxy drops the resourceVersionMatch of what "+who+" watches", func(l *lab.Lab) {
		when := func(c *wire.Call) bool { return c.Who == who && c.Query.Get("watch") != "" }
		editQuery(l, when, "without its match", func(query url.Values) { query.Del("resourceVersionMatch") })
	})
}

// WatchesSendNoInitialEvents has watches without a number begin with what comes.
var WatchesSendNoInitialEvents = New("a watch without a number begins with what comes", func(l *lab.Lab) {
	when := func(c *wire.Call) bool {
		version := c.Query.Get("resourceVersion")
		return c.Query.Get("watch") != "" && (version == "" || version == "0")
	}
	editQuery(l, when, "without initial events", func(query url.Values) {
		query.Set("sendInitialEvents", "false")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	})
})

// AProxyDropsSelectors takes the labelSelector out of watches.
var AProxyDropsSelectors = New("a proxy drops the selectors of watches", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return c.Query.Get("watch") != "" && c.Query.Get("labelSelector") != "" }
	editQuery(l, when, "without its selector", func(query url.Values) { query.Del("labelSelector") })
})

// ZeroAsksForTheNewest takes the resourceVersion "0" out of reads.
var ZeroAsksForTheNewest = New(`a read with "0" is taken for one without a number`, func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return c.Query.Get("resourceVersion") == "0" }
	editQuery(l, when, `"0" was taken out`, func(query url.Values) { query.Del("resourceVersion") })
})

// ALimitCountsForTheCacheToo takes the resourceVersion "0" out of lists with a limit of 1.
var ALimitCountsForTheCacheToo = New("a list from the cache has a limit like any other", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return c.Query.Get("resourceVersion") == "0" && c.Query.Get("limit") == "1" }
	editQuery(l, when, `"0" was taken out`, func(query url.Values) { query.Del("resourceVersion") })
})

// NotOlderThanIsIgnored puts "0" in the place of the revision of a read "not older than" it.
var NotOlderThanIsIgnored = New("a read not older than a revision is answered with what the cache has",
	func(l *lab.Lab) {
		when := func(c *wire.Call) bool { return c.Query.Get("resourceVersionMatch") == "NotOlderThan" }
		editQuery(l, when, `"0" was put in the place of the revision`, func(query url.Values) {
			query.Set("resourceVersion", "0")
		})
	})

// AProxyKeepsAnswers gives the first answer to a read to every later one.
var AProxyKeepsAnswers = New("a proxy keeps the first answer to a read and gives it again", func(l *lab.Lab) {
	var kept sync.Map
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return reads(c) && c.Query.Get("watch") == "" },
		Note: "answered by the proxy with what it kept",
		Answer: func(resp *http.Response, body []byte) []byte {
			first, _ := kept.LoadOrStore(resp.Request.URL.Path, body)
			return first.([]byte)
		},
	})
})

// AProxyMergesReplaces sends replaces as merge patches.
var AProxyMergesReplaces = New("the server merges a replace into what is there", func(l *lab.Lab) {
	sendAs(l, replaces, "made a merge patch", types.MergePatchType)
})

// StatusGoesToTheObject sends what is meant for the status subresource to the object itself.
var StatusGoesToTheObject = GoesToTheObject("status")

// GoesToTheObject sends what is meant for a subresource to the object itself.
func GoesToTheObject(subresource string) World {
	return New("what is meant for /"+subresource+" is sent to the object itself", func(l *lab.Lab) {
		editHead(l, to(subresource), "sent to the object itself", func(q *http.Request) {
			q.URL.Path = strings.TrimSuffix(q.URL.Path, "/"+subresource)
		})
	})
}

// to selects requests to a subresource.
func to(subresource string) which {
	return func(c *wire.Call) bool { return strings.HasSuffix("/"+c.Path, "/"+subresource) }
}

// TheObjectGoesToStatus sends to the status subresource what replaces an object itself.
var TheObjectGoesToStatus = New("a replace of the object itself is sent to its /status", func(l *lab.Lab) {
	main := func(c *wire.Call) bool { return replaces(c) && !toStatus(c) }
	editHead(l, main, "sent to /status", func(q *http.Request) { q.URL.Path += "/status" })
})

// StatusAlsoWrites has a replace of /status write another part of what was sent through the object itself.
func StatusAlsoWrites(part string) World {
	return New("a replace of /status writes "+part+", too", func(l *lab.Lab) {
		alsoWrites(l, toStatus, part, func(path string) string { return strings.TrimSuffix(path, "/status") })
	})
}

// TheObjectAlsoWritesStatus has a replace of an object itself write the status that was sent through /status.
var TheObjectAlsoWritesStatus = New("a replace of the object itself writes the status, too", func(l *lab.Lab) {
	main := func(c *wire.Call) bool { return replaces(c) && !toStatus(c) }
	alsoWrites(l, main, "status", func(path string) string { return path + "/status" })
})

// alsoWrites has one part of what a replace carries written by another path first, as a merge patch. The replace then
// goes on with the resourceVersion that came of it.
func alsoWrites(l *lab.Lab, when which, what string, other func(path string) string) {
	once := func(c *wire.Call) bool { return c.Who == "writer" && replaces(c) && when(c) }
	editRequest(l, once, what+" was written by another path, too", func(q *http.Request, o object) {
		sent := object{}
		for name, value := range part(o, what) {
			if name != "resourceVersion" && name != "managedFields" {
				sent[name] = value
			}
		}
		now, err := l.As("server").TryPatchAt(other(q.URL.Path), "", types.MergePatchType, marshal(object{what: sent}))
		if err == nil {
			setMeta(o, "resourceVersion", meta(decode(now), "resourceVersion"))
		}
	})
}

// ScaleNeedsNoToken takes the token out of what is sent to /scale.
var ScaleNeedsNoToken = New("what is sent to /scale is not checked for its token", func(l *lab.Lab) {
	dropToken(l, to("scale"), "the token was taken out")
})

func toStatus(c *wire.Call) bool { return to("status")(c) }

// AProxyTouchesTheSpec adds a change of the spec to patches of a Deployment that are about something else.
var AProxyTouchesTheSpec = New("a proxy adds something to the spec whenever a Deployment is patched",
	func(l *lab.Lab) {
		var count atomic.Int64
		when := func(c *wire.Call) bool {
			return patches(c) && strings.HasPrefix(c.Path, "deployments/") && !toStatus(c)
		}
		editBody(l, when, "through the proxy", func(o object) {
			if o["spec"] == nil {
				o["spec"] = object{"revisionHistoryLimit": count.Add(1)}
			}
		})
	})

// AProxyForcesWhatIsRefused sends a refused replace once more, with the newest resourceVersion, and passes on the
// refusal.
var AProxyForcesWhatIsRefused = New("a proxy passes on the refusal and sends the replace again with the newest token",
	func(l *lab.Lab) {
		newest := newestToken(l)
		afterAConflict(l, "proxy", func(q *http.Request, sent []byte) {
			defer l.Wire.Tape().Pause()()
			// An error here shows in what is stored.
			sent = withMeta(sent, "resourceVersion", newest(q))
			_, _ = l.As("proxy").TryRaw(q.Method, q.URL.Path, "", sent)
		})
	})

// AnswersAreOneTooHigh raises the resourceVersion in every answer by one.
var AnswersAreOneTooHigh = New("an answer's number is one too high", func(l *lab.Lab) {
	editAnswer(l, nil, raised, raiseToken)
})

const raised = "the number in the answer was raised by one"

// ReplacesAnswerOneTooHigh raises the resourceVersion in the answers to replaces by one.
var ReplacesAnswerOneTooHigh = New("the answer to a replace reports the next number", func(l *lab.Lab) {
	editAnswer(l, replaces, raised, raiseToken)
})

// OthersAreListedOneTooHigh raises the resourceVersions in lists by one, of what lies outside the lesson's namespace.
var OthersAreListedOneTooHigh = New("a list gives the objects of others a number that is one too high",
	func(l *lab.Lab) {
		editAnswer(l, reads, "the numbers of others were raised by one", func(list object) {
			for _, o := range items(list) {
				if in := meta(o, "namespace"); in != "" && in != l.Namespace {
					raiseToken(o)
				}
			}
		})
	})

// ListsReportAnItemsNumber gives a list the highest resourceVersion of its items.
var ListsReportAnItemsNumber = New("a list reports the number of its newest item", func(l *lab.Lab) {
	editAnswer(l, reads, "answered with the highest number of an item", func(list object) {
		highest := int64(0)
		for _, o := range items(list) {
			highest = max(highest, tokenOf(o))
		}
		if highest > 0 {
			setToken(list, highest)
		}
	})
})

// ListsReportTheFuture gives a list a resourceVersion that the store has not reached.
var ListsReportTheFuture = New("a list reports a revision that the store has not reached", func(l *lab.Lab) {
	editAnswer(l, reads, "answered with a number from the future", func(list object) {
		if list["items"] != nil {
			setToken(list, 1_000_000_000)
		}
	})
})

// items are the objects in a list.
func items(list object) []object {
	all, _ := list["items"].([]any)
	var out []object
	for _, item := range all {
		if o, ok := item.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

// AGatewayHidesTheReason puts a page of a gateway in the place of what the server says about a refusal.
var AGatewayHidesTheReason = New("a gateway replaces what the server says about a refusal by a page of its own",
	func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			Note: "the gateway hid the reason",
			Answer: func(resp *http.Response, body []byte) []byte {
				if resp.StatusCode < http.StatusBadRequest {
					return body
				}
				resp.Header.Set("Content-Type", "text/plain")
				return []byte("That did not work.")
			},
		})
	})

// RefusalsLoseTheirCauses takes the causes out of refusals.
var RefusalsLoseTheirCauses = New("a proxy takes the causes out of refusals", func(l *lab.Lab) {
	editRefusal(l, "without its causes", func(_ *http.Response, status object) {
		delete(part(status, "details"), "causes")
	})
})

// RefusalsBecome answers with another code and reason what is refused with one code.
func RefusalsBecome(code, other int, reason metav1.StatusReason) World {
	return New("the server says "+string(reason)+" in the place of "+strconv.Itoa(code), func(l *lab.Lab) {
		editRefusal(l, "a refusal gets another code and reason", func(resp *http.Response, status object) {
			if resp.StatusCode == code {
				resp.StatusCode, status["code"], status["reason"] = other, other, reason
				resp.Header.Del("Retry-After") // with a 5xx, client-go would wait and repeat
			}
		})
	})
}

// EveryRefusalIsAConflict answers every refusal with 409 Conflict.
var EveryRefusalIsAConflict = New("the server answers every refusal with 409 Conflict", func(l *lab.Lab) {
	editRefusal(l, "every refusal is a conflict", func(resp *http.Response, status object) {
		resp.StatusCode = http.StatusConflict
		status["code"], status["reason"] = http.StatusConflict, metav1.StatusReasonConflict
	})
})

// TheServerNeverSaysWhenToRepeat takes the Retry-After out of refusals.
var TheServerNeverSaysWhenToRepeat = New("no refusal says when to try again", func(l *lab.Lab) {
	editRefusal(l, "without Retry-After", func(resp *http.Response, _ object) { resp.Header.Del("Retry-After") })
})

// RefusalsAreAbout names one kind in the details of every refusal.
func RefusalsAreAbout(kind string) World {
	return New("every refusal names "+kind+" in its details", func(l *lab.Lab) {
		editRefusal(l, "details.kind is "+kind, func(_ *http.Response, status object) {
			if details := part(status, "details"); details != nil {
				details["kind"] = kind
			}
		})
	})
}
