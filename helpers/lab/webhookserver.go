package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	admission "k8s.io/api/admission/v1"
	"k8s.io/client-go/util/cert"
)

// admissionGroup is the API group of the configurations of webhooks.
const admissionGroup = "admissionregistration.k8s.io"

var (
	mutatingWebhooks = Kind{
		Kind: "MutatingWebhookConfiguration", Group: admissionGroup, Version: "v1",
		Resource: "mutatingwebhookconfigurations", Cluster: true,
	}
	validatingWebhooks = Kind{
		Kind: "ValidatingWebhookConfiguration", Group: admissionGroup, Version: "v1",
		Resource: "validatingwebhookconfigurations", Cluster: true,
	}
)

// probeLabel is on the dry runs that find out whether kube-apiserver goes by a configuration. Its value names that.
const probeLabel = "modrev.example/probe"

// serve starts the server of the webhook and returns its address and the certificate to trust.
func (w *Webhook) serve() (url string, authority []byte) {
	own, err := webhookIdentity()
	w.lab.Step(err, "making a certificate for webhooks")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.lab.Step(err, "listening for admission reviews")
	handler := http.NewServeMux()
	handler.HandleFunc("/reviews", w.answer)
	handler.HandleFunc("/probes", func(rw http.ResponseWriter, q *http.Request) {
		w.mu.Lock()
		w.probed = true
		w.mu.Unlock()
		exchange(rw, q, func(Review) Verdict { return Verdict{} })
	})
	w.server = &http.Server{
		Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own.certificate}},
		ReadHeaderTimeout: lessonLimit, ErrorLog: log.New(io.Discard, "", 0), // kube-apiserver says what went wrong
	}
	w.lab.Cleanup(w.Down)
	go func() { _ = w.server.ServeTLS(listener, "", "") }() // its error is that the server was closed
	return "https://" + listener.Addr().String(), own.authority
}

// Down ends the server: nobody listens at its address any more.
func (w *Webhook) Down() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	_ = w.server.Close() // the listener and the connections go either way
	w.running.Wait()
}

// answer answers a review.
func (w *Webhook) answer(rw http.ResponseWriter, q *http.Request) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.running.Add(1)
	}
	w.mu.Unlock()
	if closed {
		return
	}
	defer w.running.Done()
	exchange(rw, q, func(r Review) Verdict { return w.judge(q.Context(), r) })
}

// exchange reads a review and writes what judge says about it.
func exchange(rw http.ResponseWriter, q *http.Request, judge func(Review) Verdict) {
	var review admission.AdmissionReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(rw, "this is no admission review", http.StatusBadRequest)
		return
	}
	r, err := reviewOf(review.Request)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response, review.Request = judge(r).response(r.UID), nil
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(review) // an error means that kube-apiserver has hung up
}

// configuration is the name of the configuration of the webhook.
func (w *Webhook) configuration() string { return w.lab.Namespace + "-" + w.hook.Name }

// register makes the configuration of the webhook, until the lesson ends. A second entry in it is asked about probes,
// and the first is not.
func (w *Webhook) register(url string, authority []byte) {
	kind := validatingWebhooks
	if w.hook.Mutating {
		kind = mutatingWebhooks
	}
	def := kind.newObject("", w.configuration())
	asked := w.entry(w.hook.Name, url+"/reviews", authority)
	asked["objectSelector"] = map[string]any{
		"matchExpressions": []any{map[string]any{"key": probeLabel, "operator": "DoesNotExist"}},
	}
	asked["rules"] = rules(w.hook.Operations, w.hook.Resources)
	probe := w.entry("probe", url+"/probes", authority)
	probe["objectSelector"] = map[string]any{"matchLabels": map[string]any{probeLabel: w.configuration()}}
	probe["rules"] = rules([]string{"CREATE"}, nil)
	def.Object["webhooks"] = []any{asked, probe}

	client := w.lab.quiet().Of(kind)
	_, err := client.TryCreateObject(def)
	w.lab.Step(err, "registering the webhook "+w.hook.Name)
	w.lab.Cleanup(func() {
		// An error here means that the run is being cut off, and the store goes with it.
		_ = client.TryDelete(w.configuration())
	})
}

// entry is one webhook of the configuration, without what selects requests in the lesson's namespace.
func (w *Webhook) entry(name, url string, authority []byte) map[string]any {
	out := map[string]any{
		"name":                    name + exampleDomain,
		"clientConfig":            map[string]any{"url": url, "caBundle": base64.StdEncoding.EncodeToString(authority)},
		"admissionReviewVersions": []any{"v1"},
		"sideEffects":             "None",
		"failurePolicy":           "Fail",
		"timeoutSeconds":          int64(max(w.hook.Seconds, 0)),
		"namespaceSelector": map[string]any{
			"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.lab.Namespace},
		},
	}
	if w.hook.Seconds == 0 {
		delete(out, "timeoutSeconds")
	}
	if w.hook.FailsOpen {
		out["failurePolicy"] = "Ignore"
	}
	if w.hook.Mutating && w.hook.Reinvoke {
		out["reinvocationPolicy"] = "IfNeeded"
	}
	return out
}

// rules select requests about objects in namespaces.
func rules(operations, resources []string) []any {
	if operations == nil {
		operations = []string{"CREATE", "UPDATE", "DELETE"}
	}
	if resources == nil {
		resources = []string{ConfigMap.Resource}
	}
	list := func(words []string) []any {
		out := make([]any, len(words))
		for i, word := range words {
			out[i] = word
		}
		return out
	}
	return []any{map[string]any{
		"operations": list(operations), "resources": list(resources), "apiGroups": []any{"*"},
		"apiVersions": []any{"*"}, "scope": "Namespaced",
	}}
}

// webhookIdentity is the certificate of the webhooks of a run, which is its own authority. It is made once.
var webhookIdentity = sync.OnceValues(func() (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "modrev-webhooks"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		authority:   pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}),
	}, nil
})

// identity is how a server proves who it is.
type identity struct {
	certificate tls.Certificate
	authority   []byte // to trust
}
