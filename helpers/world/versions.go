package world

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what connects the views of one object: its versions, its schema, its stored form.

// v1 is what the path of a request through version v1 of a custom resource holds, and its body as apiVersion.
const v1 = ".modrev.example/v1"

// EachVersionHasATokenOfItsOwn puts the newest token into replaces through v1: nothing but a replace through v1 makes
// a token of v1 stale.
var EachVersionHasATokenOfItsOwn = New("a write through one version leaves the tokens of the others good",
	func(l *lab.Lab) {
		newest := newestToken(l)
		sendToken(l, replaces, "its token is still good in v1", func(q *http.Request) string {
			if strings.Contains(q.URL.Path, "/v1/") {
				return newest(q)
			}
			return ""
		})
	})

// AGatewaySendsV1OnToV2 sends what is for version v1 of a custom resource to version v2.
var AGatewaySendsV1OnToV2 = New("a gateway sends what is for v1 on to v2", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasPrefix(c.Path, "shelves") },
		Note: "v2 in any case",
		Request: func(q *http.Request, body []byte) []byte {
			v2 := strings.TrimSuffix(v1, "1") + "2"
			q.URL.Path = strings.Replace(q.URL.Path, v1+"/", v2+"/", 1)
			return bytes.Replace(body, []byte(v1+`"`), []byte(v2+`"`), 1)
		},
	})
})

// EmptyPatchesAreNotStored makes dry runs of empty merge patches.
var EmptyPatchesAreNotStored = New("an empty patch is checked, and not stored", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: mergePatches, Note: "a dry run, if it is empty",
		Request: func(q *http.Request, body []byte) []byte {
			if string(body) == "{}" {
				setQuery(q, func(query url.Values) { query.Set("dryRun", "All") })
			}
			return body
		}})
})

// ReplacesAreNotStored makes dry runs of replaces.
var ReplacesAreNotStored = New("a replace by the same is checked, and not stored", func(l *lab.Lab) {
	editQuery(l, replaces, "a dry run", func(query url.Values) { query.Set("dryRun", "All") })
})

// AnnotationsAreNotSentBack takes the annotations out of replaces.
var AnnotationsAreNotSentBack = New("the client leaves annotations out of every replace", func(l *lab.Lab) {
	dropMeta(l, replaces, "without annotations", "annotations")
})

// LostAnnotationsAreKept puts the annotations that an object has into replaces that have none.
var LostAnnotationsAreKept = New("a replace without annotations keeps those that are there", func(l *lab.Lab) {
	editRequest(l, replaces, "with the annotations that are there", func(q *http.Request, o object) {
		if part(part(o, "metadata"), "annotations") == nil {
			defer l.Wire.Tape().Pause()()
			// When there is an error, there are no annotations.
			now, _ := l.As("server").TryRaw(http.MethodGet, q.URL.Path, "", nil)
			setMeta(o, "annotations", part(part(decode(now), "metadata"), "annotations"))
		}
	})
})

// ADefinitionRewritesItsObjects replaces an object by itself before the writer reads it: a change of its definition is
// written into it.
var ADefinitionRewritesItsObjects = New("a changed definition has its objects written anew", func(l *lab.Lab) {
	named := func(c *wire.Call) bool {
		return reads(c) && c.Who == "writer" && strings.HasPrefix(c.Path, "shelves/")
	}
	editHead(l, named, "written anew first", func(q *http.Request) { rewrite(l, q.URL.Path) })
})

// rewrite replaces an object by itself. An error shows in what is stored.
func rewrite(l *lab.Lab, path string) {
	now, _ := l.As("migrator").TryRaw(http.MethodGet, path, "", nil)
	_, _ = l.As("migrator").TryRaw(http.MethodPut, path, "", now)
}

// NothingIsStrict takes Strict out of the parameters of writes.
var NothingIsStrict = New("a proxy strips fieldValidation from writes", func(l *lab.Lab) {
	strict := func(c *wire.Call) bool { return c.Query.Get("fieldValidation") == "Strict" }
	editQuery(l, strict, "no longer strict", func(query url.Values) { query.Del("fieldValidation") })
})

// ADefinitionIsInForceAtOnce answers a change of a definition when kube-apiserver goes by it.
var ADefinitionIsInForceAtOnce = New("a changed definition is in force as soon as it is accepted", func(l *lab.Lab) {
	lab.DefinitionHook.Bend(l, true)
})
