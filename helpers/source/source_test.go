package source

import (
	"context"
	"flag"
	"go/token"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	etcd3  = "k8s.io/apiserver/pkg/storage/etcd3"
	client = "go.etcd.io/etcd/client/v3/kubernetes"
)

var other = flag.String("source.version", "", "read the source of this version of Kubernetes, such as 1.34.4, too")

// newest is the source that this repository pins.
func newest(t *testing.T) *Tree {
	t.Helper()
	tree, err := For(t.Context(), "1.37")
	require.NoError(t, err)
	return tree
}

func TestAReferenceIsWrittenWithoutLookingAnythingUp(t *testing.T) {
	r := Decl("example.org/none", "(*Nobody).Does")
	assert.Equal(t, "example.org/none (*Nobody).Does", r.String())
	assert.False(t, r.IsZero())
	assert.True(t, Ref{}.IsZero())
	assert.Empty(t, Ref{}.String())
}

func TestReferencesAreFoundInThePinnedSource(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	tree := newest(t)
	assert.Regexp(t, `^v1\.37\.\d+$`, tree.Version())
	staging := "v0" + strings.TrimPrefix(tree.Version(), "v1")
	for _, c := range []struct {
		ref   Ref
		found string // without the version where that is not Kubernetes' own
	}{
		{Decl(etcd3, "(*store).GuaranteedUpdate"),
			"k8s.io/apiserver " + staging + " pkg/storage/etcd3/store.go (*store).GuaranteedUpdate"},
		{Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta.ResourceVersion"),
			"k8s.io/apimachinery " + staging + " pkg/apis/meta/v1/types.go ObjectMeta.ResourceVersion"},
		{Decl("k8s.io/client-go/util/retry", "DefaultRetry"),
			"k8s.io/client-go " + staging + " util/retry/util.go DefaultRetry"},
		{Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "Strategy"),
			"k8s.io/kubernetes " + tree.Version() + " pkg/registry/coordination/lease/strategy.go Strategy"},
		{Decl(client, "(*Client).OptimisticPut"),
			"go.etcd.io/etcd/client/v3 kubernetes/client.go Client.OptimisticPut"},
		{Decl(client, "Interface.OptimisticPut"),
			"go.etcd.io/etcd/client/v3 kubernetes/interface.go Interface.OptimisticPut"},
		{Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*keyIndex).put"),
			"go.etcd.io/etcd/server/v3 storage/mvcc/key_index.go (*keyIndex).put"},
		{Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"),
			"sigs.k8s.io/controller-runtime pkg/client/patch.go MergeFromWithOptimisticLock"},
	} {
		at, err := tree.Find(t.Context(), c.ref)
		require.NoError(t, err)
		assert.Positive(t, at.Line)
		assert.NotEmpty(t, at.Version)
		if !strings.HasPrefix(at.Module, "k8s.io/") {
			at.Version = ""
		}
		assert.Equal(t, c.found, strings.Join(strings.Fields(at.String()), " "))
	}
	at := Location{Module: "example.org/app", Version: "v1.2.3", File: "sub/app.go", Func: "(*App).Run", Line: 7}
	assert.Equal(t, "example.org/app v1.2.3 sub/app.go (*App).Run", at.String())
	assert.Equal(t, "sub/app.go:7", at.Position())
}

func TestAReferenceToNothingIsAnErrorThatHelps(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	tree := newest(t)
	for _, c := range []struct {
		ref  Ref
		says string
	}{
		{Decl(etcd3, "GuaranteedUpdate"), `has no "GuaranteedUpdate": look for where it moved; called alike: (*store).G`},
		{Decl(etcd3, "(*Store).GuaranteedUpdate"), "called alike: (*store).GuaranteedUpdate"},
		{Decl(etcd3, ""), `has no "": look for where it moved`},
		{Decl(etcd3+"s", "New"), "there is no such package: it may have moved"},
		{Decl("k8s.io/apiserver/pkg", "New"), "there is no such package: it may have moved"},
		{Decl("example.org/none", "New"), `holds package "example.org/none": check the import path`},
		{Ref{}, `holds package "": check the import path`},
	} {
		_, err := tree.Find(t.Context(), c.ref)
		require.ErrorContains(t, err, c.says)
		assert.NotErrorIs(t, err, ErrNoSource)
		assert.NotContains(t, err.Error(), "\n")
		t.Log(err)
	}
}

func TestADeclarationIsFoundWhateverItsForm(t *testing.T) {
	p := parsed{module: "example.org/app", version: "v1.0.0", fset: token.NewFileSet()}
	require.NoError(t, p.parse("app.go", `package app

type Set[K comparable, V any] map[K]V

func (s *Set[K, V]) Put(k K, v V) {}

func (Set[K, _]) Has(k K) bool { return false }

type Box[T any] struct{ Content, Label T }

func (b (Box[T])) Open() T { return b.Content }

type Opener interface{ Open(key string) }

var First, Second = 1, func(hidden int) {}

const Limit = 3
`))
	tree := newTree("v1", &mainModule{requires: map[string]string{"example.org/app": "v1.0.0"}})
	tree.packages["example.org/app"] = &p
	for asked, found := range map[string]Location{
		"Set":             {Func: "Set", Line: 3},
		"(*Set).Put":      {Func: "(*Set).Put", Line: 5},
		"(*Set[K,V]).Put": {Func: "(*Set).Put", Line: 5},
		"Set.Has":         {Func: "Set.Has", Line: 7},
		"Box.Label":       {Func: "Box.Label", Line: 9},
		"(*Box).Open":     {Func: "Box.Open", Line: 11},
		"(Opener).Open":   {Func: "Opener.Open", Line: 13},
		"Second":          {Func: "Second", Line: 15},
		"Limit":           {Func: "Limit", Line: 17},
	} {
		found.Module, found.Version, found.File = "example.org/app", "v1.0.0", "app.go"
		at, err := tree.Find(t.Context(), Decl("example.org/app", asked))
		require.NoError(t, err)
		assert.Equal(t, found, at)
	}
	for _, inner := range []string{"hidden", "Opener.key"} {
		_, err := tree.Find(t.Context(), Decl("example.org/app", inner))
		assert.Error(t, err)
	}
}

// isTheUpdate checks the statement of the first document: the source has a compare on the ModRevision of
// the key, a put when it holds, and a get when it does not.
func isTheUpdate(t *testing.T, tree *Tree) {
	t.Helper()
	u, err := tree.UpdateTransaction(t.Context())
	require.NoError(t, err)
	t.Logf("\n%s", u)
	assert.Equal(t, "origState.rev", u.Revision)
	assert.Contains(t, u.Options, "GetOnFailure")
	assert.Equal(t, "kubernetes/client.go", u.At.File)
	assert.Equal(t, "Client.OptimisticPut", u.At.Func)
	assert.Equal(t, `Compare(ModRevision(key), "=", expectedRevision)`, u.Compare)
	assert.Equal(t, "mod_revision =", u.FieldName()+" "+u.Operator)
	assert.Equal(t, "OpPut else OpGet if GetOnFailure", u.Then+" else "+u.Else+" if "+u.ElseIf)
	assert.Equal(t, "origState = txnResp.KV", u.State+" = "+u.From)
	assert.True(t, u.Again)
	assert.Empty(t, u.Reads)
	for _, lines := range []string{u.asked, u.txn, u.retry} {
		assert.Regexp(t, `^\S+ v\S+ \S+\.go:\d+\n    \S`, lines)
		assert.NotContains(t, lines, "\t")
	}
}

func TestAnUpdateIsComparedByEtcdsClient(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	isTheUpdate(t, newest(t))
}

func TestTheSourceOfAReleaseThatIsNotPinnedIsRead(t *testing.T) {
	if *other == "" {
		t.Skip("this downloads what is not in the module cache: -source.version=1.34.4 says which")
	}
	tree, err := For(t.Context(), *other)
	require.NoError(t, err)
	isTheUpdate(t, tree)
	at, err := tree.Find(t.Context(), Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "Config"))
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(*other, "1"), strings.TrimPrefix(at.Version, "v0"))
}

func TestCodeThatMovedIsNamed(t *testing.T) {
	tree := newest(t)
	for _, c := range []struct{ pkg, old, new, says string }{
		{etcd3, ") GuaranteedUpdate(", ") EnsuredUpdate(", `has no "(*store).GuaranteedUpdate"`},
		{etcd3, "Kubernetes.OptimisticPut(", "Kubernetes.Put(", "the revision that an update hands on is no longer there: "},
		{etcd3, "!txnResp.Succeeded", "txnResp.Failed", "what an update does after a failed compare is no longer there: "},
		{client, ") OptimisticPut(", ") Put(", `has no "Client.OptimisticPut"`},
		{client, "clientv3.Compare(", "compare(", "what an update compares, and does then, is no longer there: "},
		{client, ").Then(", ").Do(", "does not call Then once, with as many arguments as it did (1)"},
		{client, "package kubernetes", "packet", "parsing the package: kubernetes/client.go:"},
	} {
		_, err := tree.With(t.Context(), c.pkg, c.old, c.new).UpdateTransaction(t.Context())
		require.ErrorContains(t, err, c.says)
		t.Log(err)
	}
	isTheUpdate(t, tree) // it is not altered
}

func TestATreeIsSafeForConcurrentUse(t *testing.T) {
	tree := newest(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := tree.UpdateTransaction(t.Context())
			assert.NoError(t, err)
			_, err = tree.With(t.Context(), etcd3, "origState", "state").UpdateTransaction(t.Context())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
}

func TestAVersionWithoutSourceSaysSo(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	for version, says := range map[string]string{
		"v1.34.4":         "kube-apiserver v1.34.4 is not pinned, and its source could not be downloaded",
		"v1.37.0-rc.1":    "kube-apiserver v1.37.0-rc.1 is not pinned, and its source could not be downloaded",
		"v1.34.4+k3s1":    "does not name a release of Kubernetes",
		"v1.34.4-gke.100": "does not name a release of Kubernetes",
		"newest":          "does not name a release of Kubernetes",
	} {
		_, err := For(t.Context(), version)
		require.ErrorIs(t, err, ErrNoSource, version)
		assert.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "\n")
	}
	_, err := newest(t).UpdateTransaction(t.Context())
	require.ErrorIs(t, err, ErrNoSource)
	assert.ErrorContains(t, err, "it is not in the module cache and could not be downloaded: module lookup disabled")
	assert.NotContains(t, err.Error(), "\n")
}

func TestGivingUpIsNotTheSameAsHavingNoSource(t *testing.T) {
	tree := newest(t)
	ctx, giveUp := context.WithCancelCause(t.Context())
	giveUp(assert.AnError)
	_, err := tree.Find(ctx, Decl(etcd3, "(*store).Create"))
	require.ErrorIs(t, err, assert.AnError)
	require.NotErrorIs(t, err, ErrNoSource)
	_, err = For(ctx, "1.34.4")
	require.ErrorIs(t, err, assert.AnError)
	require.NotErrorIs(t, err, ErrNoSource)
	_, err = tree.Find(t.Context(), Decl(etcd3, "(*store).Create"))
	require.NoError(t, err, "what was cut off is tried again")
}
