package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// authn lets users in by client certificates. envtest has an authenticator that does the same; this one
// says too when envtest has completed the configuration of the kube-apiserver, which is when it may be
// read, and long before envtest's Start returns.
type authn struct {
	complete chan struct{}
	ca       *x509.Certificate
	key      crypto.Signer
	file     string
}

var _ envtest.Authn = (*authn)(nil)

func newAuthn() (*authn, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority for client certificates: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "modrev-clients"}, key)
	if err != nil {
		return nil, fmt.Errorf("making the authority for client certificates: %w", err)
	}
	return &authn{complete: make(chan struct{}), ca: ca, key: key}, nil
}

// Configure implements envtest.Authn.
func (a *authn) Configure(folder string, args *envtest.Arguments) error {
	a.file = filepath.Join(folder, "client-ca.crt")
	args.Set("client-ca-file", a.file)
	return nil
}

// Start implements envtest.Authn. It is the last step before kube-apiserver is started.
func (a *authn) Start() error {
	pemCA := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: a.ca.Raw})
	if err := os.WriteFile(a.file, pemCA, 0o600); err != nil {
		return fmt.Errorf("writing the authority for client certificates: %w", err)
	}
	close(a.complete)
	return nil
}

// AddUser implements envtest.Authn.
func (a *authn) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of user %q: %w", user.Name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, fmt.Errorf("making the serial number of user %q's certificate: %w", user.Name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: user.Name, Organization: user.Groups},
		NotBefore:    a.ca.NotBefore,
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.ca, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of user %q: %w", user.Name, err)
	}
	pemKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of user %q: %w", user.Name, err)
	}
	cfg := rest.CopyConfig(base)
	cfg.CertData = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	cfg.KeyData = pemKey
	return cfg, nil
}

// Stop implements envtest.Authn.
func (a *authn) Stop() error { return nil }
