package lab

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"

	"modrev/helpers/wire"
)

const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"UPDATE",
	"resource":{"group":"","version":"v1","resource":"pods"},"subResource":"eviction","name":"shelf","dryRun":true,
	"options":{"fieldManager":"writer"},"object":{"metadata":{"name":"shelf"}},
	"oldObject":{"metadata":{"resourceVersion":"7"}}}}`

func TestAWebhookAnswersOverHTTPSAndLeavesNoPort(t *testing.T) {
	l := &Lab{ctx: t.Context(), Namespace: "ot50-1", Wire: new(wire.Wire).Tap("ot50-1")}
	w := &Webhook{lab: l, ctx: t.Context(), cancel: func() {},
		hook: Admission{Name: "judge", Judge: func(r Review) Verdict {
			return Verdict{Patch: "[" + r.Who + "]"}
		}}}
	url, authority := w.serve()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}

	resp, err := client.Post(url+"/reviews", "application/json", strings.NewReader(review))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var answer admission.AdmissionReview
	require.NoError(t, json.Unmarshal(body, &answer))
	assert.Equal(t, "AdmissionReview", answer.Kind)
	assert.EqualValues(t, "u1", answer.Response.UID)
	assert.True(t, answer.Response.Allowed)
	assert.Equal(t, "[writer]", string(answer.Response.Patch))
	seen := w.Reviews()
	require.Len(t, seen, 1)
	assert.Equal(t, "UPDATE pods/eviction/shelf, old object 7, a dry run", seen[0].String())
	assert.Equal(t, "shelf", seen[0].Object.GetName())
	assert.Empty(t, w.Reviews(), "they are told once")
	assert.Equal(t, []string{
		"    judge is asked about UPDATE pods/eviction/shelf, old object 7, a dry run", "    judge: admitted, with a patch",
	}, l.Wire.Tape().Lines(0))

	w.Down()
	w.Down() // again does no harm
	_, err = net.Dial("tcp", strings.TrimPrefix(url, "https://"))
	require.ErrorContains(t, err, "connection refused")
}

func TestAHeldVerdictWaitsForItsRelease(t *testing.T) {
	l := &Lab{ctx: t.Context(), Wire: new(wire.Wire).Tap("ot50-1")}
	w := &Webhook{lab: l, ctx: t.Context()}
	held := w.Hold(func(r Review) bool { return r.Name == "shelf" })
	done := make(chan Verdict)
	assert.Equal(t, Verdict{}, w.judge(t.Context(), Review{Name: "box"}), "another passes")
	go func() { done <- w.judge(t.Context(), Review{Name: "shelf"}) }()
	held.Made()
	select {
	case <-done:
		t.Fatal("the verdict did not wait")
	default:
	}
	held.Release()
	held.Release()
	assert.Equal(t, Verdict{}, <-done)
	assert.Equal(t, Verdict{}, w.judge(t.Context(), Review{Name: "shelf"}), "only one is held")
}
