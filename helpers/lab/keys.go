package lab

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"modrev/helpers/controlplane"
)

// vault is a control plane whose kube-apiservers encrypt. It is started when a lesson first asks for it.
type vault struct {
	once    sync.Once
	before  *Session
	rotated *controlplane.APIServer
	err     error
}

// Encrypted is a lab over a control plane whose kube-apiserver encrypts with key1, and a client of another
// kube-apiserver over the same etcd that was restarted in a rotation: it encrypts with key2, and knows key1. They
// encrypt Secrets with aesgcm, and ResourceQuotas, which need it less, with aescbc.
func (l *Lab) Encrypted() (*Lab, *Client) {
	l.open()
	v := &l.session.vault
	v.once.Do(func() { v.err = v.start(l.ctx, l.session) })
	l.Step(v.err, "starting kube-apiservers that encrypt")
	before := l.at(v.before)
	defer l.Wire.Tape().Pause()()
	before.makeNamespace()
	return before, &Client{lab: before, who: "writer", kind: Secret, config: v.rotated.Admin()}
}

func (v *vault) start(ctx context.Context, shared *Session) error {
	dir, err := os.MkdirTemp(shared.control.Dir(), "keys")
	if err != nil {
		return fmt.Errorf("making a folder for keys: %w", err)
	}
	before, err := keysFile(dir, "before", "key1")
	if err != nil {
		return err
	}
	after, err := keysFile(dir, "after", "key2", "key1")
	if err != nil {
		return err
	}
	s := &Session{binary: shared.binary}
	s.control, err = controlplane.Start(ctx, controlplane.Options{
		APIServerPath: s.binary.Path, EtcdServerOptions: shared.wire.ServerOptions(), Flags: encryption(before),
	})
	if err != nil {
		return err
	}
	s.started = true
	v.before = s
	v.rotated, err = s.control.StartAPIServer(ctx, controlplane.APIServerOptions{Flags: encryption(after)})
	return err
}

func (v *vault) stop() error {
	if v.before == nil {
		return nil
	}
	return v.before.Stop()
}

func encryption(file string) map[string]string {
	return map[string]string{"encryption-provider-config": file}
}

// keysFile writes an EncryptionConfiguration: the first key encrypts, all of them decrypt.
func keysFile(dir, name string, keys ...string) (string, error) {
	var list, b strings.Builder
	for _, key := range keys {
		secret := strings.Repeat(key, 32/len(key)) // of 32 bytes, and no secret at all
		fmt.Fprintf(&list, "      - {name: %s, secret: %s}\n", key, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for resource, provider := range map[string]string{"secrets": "aesgcm", "resourcequotas": "aescbc"} {
		fmt.Fprintf(&b, "- resources: [%s]\n  providers:\n  - %s:\n      keys:\n%s", resource, provider, list.String())
	}
	path := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing keys: %w", err)
	}
	return path, nil
}
