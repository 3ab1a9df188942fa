package source_test

import (
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/source"
)

const etcd3 = "k8s.io/apiserver/pkg/storage/etcd3"

var versions = flag.String("source.versions", "", "read the source of these versions of Kubernetes too, such as 1.30.14,1.34.4, and download it where needed")

// pinned is the source of the version that this repository pins for the given minor.
func pinned(t *testing.T) *source.Tree {
	t.Helper()
	tree, err := source.Pinned("v1.37")
	require.NoError(t, err)
	return tree
}

func TestAReferenceIsWrittenWithoutLookingAnythingUp(t *testing.T) {
	r := source.Decl("example.org/none", "(*Nobody).Does")
	assert.Equal(t, "example.org/none (*Nobody).Does", r.String())
	assert.False(t, r.IsZero())
	assert.True(t, source.Ref{}.IsZero())
	assert.Empty(t, source.Ref{}.String())
}

func TestRefsAreFoundInThePinnedSource(t *testing.T) {
	tree := pinned(t)
	assert.Regexp(t, `^v1\.37\.\d+$`, tree.Version())
	staging := "v0" + strings.TrimPrefix(tree.Version(), "v1")
	for _, c := range []struct {
		ref                   source.Ref
		module, version, file string
		fn                    string
	}{
		{source.Decl(etcd3, "(*store).GuaranteedUpdate"), "k8s.io/apiserver", staging, "pkg/storage/etcd3/store.go", "(*store).GuaranteedUpdate"},
		{source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"), "k8s.io/apiserver", staging, "pkg/registry/generic/registry/store.go", "(*Store).Update"},
		{source.Decl("k8s.io/apimachinery/pkg/api/errors", "NewConflict"), "k8s.io/apimachinery", staging, "pkg/api/errors/errors.go", "NewConflict"},
		{source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta.ResourceVersion"), "k8s.io/apimachinery", staging, "pkg/apis/meta/v1/types.go", "ObjectMeta.ResourceVersion"},
		{source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "StatusReasonConflict"), "k8s.io/apimachinery", staging, "pkg/apis/meta/v1/types.go", "StatusReasonConflict"},
		{source.Decl("k8s.io/client-go/util/retry", "DefaultRetry"), "k8s.io/client-go", staging, "util/retry/util.go", "DefaultRetry"},
		{source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "(*Client).OptimisticPut"), "go.etcd.io/etcd/client/v3", "", "kubernetes/client.go", "Client.OptimisticPut"},
		{source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Interface.OptimisticPut"), "go.etcd.io/etcd/client/v3", "", "kubernetes/interface.go", "Interface.OptimisticPut"},
		{source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*keyIndex).put"), "go.etcd.io/etcd/server/v3", "", "storage/mvcc/key_index.go", "(*keyIndex).put"},
		{source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"), "sigs.k8s.io/controller-runtime", "", "pkg/client/patch.go", "MergeFromWithOptimisticLock"},
	} {
		t.Run(c.ref.String(), func(t *testing.T) {
			at, err := tree.Find(t.Context(), c.ref)
			require.NoError(t, err)
			if c.version != "" {
				assert.Equal(t, c.version, at.Version)
			}
			assert.Equal(t, source.Location{Module: c.module, Version: at.Version, File: c.file, Func: c.fn, Line: at.Line}, at)
			assert.Equal(t, c.module+" "+at.Version+" "+c.file+" "+c.fn, at.String())
			assert.Positive(t, at.Line)
			assert.Equal(t, c.file+":"+strconv.Itoa(at.Line), at.Position())
		})
	}
}

func TestARefToNothingIsAnErrorThatHelps(t *testing.T) {
	tree := pinned(t)
	for _, c := range []struct {
		ref  source.Ref
		says []string
	}{
		{source.Decl(etcd3, "(*store).GuarantedUpdate"), []string{"has no (*store).GuarantedUpdate", "nearest there: (*store).GuaranteedUpdate"}},
		{source.Decl(etcd3, "GuaranteedUpdate"), []string{"nearest there: (*store).GuaranteedUpdate"}},
		{source.Decl(etcd3, "(*Store).GuaranteedUpdate"), []string{"nearest there: (*store).GuaranteedUpdate"}},
		{source.Decl(etcd3, "Zyzzyva"), []string{"nothing there has a similar name"}},
		{source.Decl(etcd3+"s", "New"), []string{"k8s.io/apiserver v0.37", "has no package " + etcd3 + "s"}},
		{source.Decl("k8s.io/apiserver/pkg", "New"), []string{"no Go files in pkg"}},
		{source.Decl("example.org/none", "New"), []string{"holds package example.org/none", "check the import path"}},
		{source.Decl(etcd3, ""), []string{"incomplete"}},
		{source.Ref{}, []string{"incomplete"}},
	} {
		t.Run(c.ref.String(), func(t *testing.T) {
			_, err := tree.Find(t.Context(), c.ref)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "\n")
			for _, s := range c.says {
				assert.ErrorContains(t, err, s)
			}
		})
	}
}

// The statement of the first document: the source has a comparison on the ModRevision of the key, a
// put when it holds, and a get when it does not.
func TestAnUpdateOfThePinnedVersionIsComparedByEtcdsClient(t *testing.T) {
	tree := pinned(t)
	chain, err := tree.UpdateTransaction(t.Context())
	require.NoError(t, err)
	t.Logf("\n%s", chain)
	isTheUpdate(t, chain)
	assert.False(t, comparesInPlace(chain))
	require.Len(t, chain.Steps, 2)
	assert.Equal(t, "(*store).GuaranteedUpdate", chain.Steps[0].Func)
	assert.Equal(t, "Interface.OptimisticPut", chain.Steps[0].Calls)
	assert.Equal(t, []string{"expectedRevision = origState.rev", "GetOnFailure = true"}, chain.Steps[0].With)
	assert.Greater(t, chain.Steps[0].CallLine, chain.Steps[0].Line)
	assert.Equal(t, "go.etcd.io/etcd/client/v3", chain.Steps[1].Module)
	assert.Equal(t, "kubernetes/client.go", chain.Steps[1].File)
	assert.Equal(t, "Client.OptimisticPut", chain.Steps[1].Func)
	assert.Equal(t, `Compare(ModRevision(key), "=", expectedRevision)`, chain.If[0].String())
	assert.Equal(t, "OpPut(key, value)", chain.Then[0].String())
	assert.Equal(t, "OpGet(key), when GetOnFailure", chain.Else[0].String())
	assert.Equal(t, "txnResp.KV", chain.Retry.From)
}

// comparesInPlace reports whether the comparison stands in the very file where the chain begins, as
// it did up to Kubernetes 1.31. Since 1.32 it is etcd's client that builds it.
func comparesInPlace(c source.Chain) bool {
	return c.If[0].At.Module == c.Steps[0].Module && c.If[0].At.File == c.Steps[0].File
}

// isTheUpdate checks what every version has in common, wherever the comparison stands.
func isTheUpdate(t *testing.T, chain source.Chain) {
	t.Helper()
	require.Len(t, chain.If, 1)
	assert.Equal(t, "ModRevision", chain.If[0].Field)
	assert.Equal(t, "mod_revision", chain.If[0].FieldName())
	assert.Equal(t, "=", chain.If[0].Operator)
	assert.Equal(t, "origState.rev", chain.If[0].Expects)
	require.Len(t, chain.Then, 1)
	assert.Equal(t, "OpPut", chain.Then[0].Name)
	assert.Equal(t, source.Yes, chain.Then[0].Sent)
	require.Len(t, chain.Else, 1)
	assert.Equal(t, "OpGet", chain.Else[0].Name)
	assert.Equal(t, source.Yes, chain.Else[0].Sent)
	assert.Equal(t, "(*store).GuaranteedUpdate", chain.Retry.In.Func)
	assert.Equal(t, "(*store).getState", chain.Retry.Func.Func)
	assert.True(t, chain.Retry.Again)
	assert.Empty(t, chain.Retry.SecondRead)
}

// isTheCreateAndTheDelete checks the two other writes: a create is the same with nothing expected
// and nothing read, a delete is the same with a delete.
func isTheCreateAndTheDelete(t *testing.T, tree *source.Tree) {
	t.Helper()
	create, err := tree.Transaction(t.Context(), source.Decl(etcd3, "(*store).Create"))
	require.NoError(t, err)
	require.Len(t, create.If, 1)
	assert.Equal(t, "ModRevision", create.If[0].Field)
	assert.Equal(t, "0", create.If[0].Expects)
	require.Len(t, create.Then, 1)
	assert.Equal(t, "OpPut", create.Then[0].Name)
	for _, o := range create.Else {
		assert.Equal(t, source.No, o.Sent)
	}
	assert.True(t, create.Retry.IsZero())

	for _, fn := range []string{"(*store).conditionalDelete", "(*store).Delete"} {
		del, err := tree.Transaction(t.Context(), source.Decl(etcd3, fn))
		require.NoError(t, err)
		require.Len(t, del.If, 1)
		assert.Equal(t, "ModRevision", del.If[0].Field)
		assert.Equal(t, "origState.rev", del.If[0].Expects)
		require.Len(t, del.Then, 1)
		assert.Equal(t, "OpDelete", del.Then[0].Name)
		require.Len(t, del.Else, 1)
		assert.Equal(t, source.Yes, del.Else[0].Sent)
		assert.Equal(t, "(*store).getState", del.Retry.Func.Func)
	}
}

func TestCreateAndDeleteAreTheSameTransaction(t *testing.T) {
	isTheCreateAndTheDelete(t, pinned(t))
}

// Up to Kubernetes 1.31 the comparison stood where the documents look for it. The versions that
// -source.versions names are read; without it, two whose source is in the module cache, which needs
// no network.
func TestTheAnswerFollowsTheVersion(t *testing.T) {
	wanted := strings.FieldsFunc(*versions, func(r rune) bool { return r == ',' })
	if len(wanted) == 0 {
		t.Setenv("GOPROXY", "off")
		wanted = cached(t)
	}
	for _, version := range wanted {
		t.Run(version, func(t *testing.T) {
			tree, err := source.For(t.Context(), version)
			if *versions == "" && err != nil {
				require.ErrorIs(t, err, source.ErrNoSource)
				t.Skipf("only a part of this version is in the module cache; -source.versions=%s downloads the rest", version)
			}
			require.NoError(t, err)
			chain, err := tree.UpdateTransaction(t.Context())
			if *versions == "" && err != nil {
				require.ErrorIs(t, err, source.ErrNoSource)
				t.Skipf("only a part of this version is in the module cache; -source.versions=%s downloads the rest", version)
			}
			require.NoError(t, err)
			t.Logf("\n%s", chain)
			isTheUpdate(t, chain)
			isTheCreateAndTheDelete(t, tree)
			minor, err := strconv.Atoi(strings.Split(version, ".")[1])
			require.NoError(t, err)
			assert.Equal(t, minor <= 31, comparesInPlace(chain))
			if minor <= 31 {
				assert.Len(t, chain.Steps, 1)
			} else {
				assert.Len(t, chain.Steps, 2)
			}
		})
	}
}

// cached lists the two versions of Kubernetes on either side of the move whose apiserver module is in
// the module cache: the newest up to 1.31, and the oldest since 1.32. Where the cache holds none, as
// on a fresh machine, it lists none.
func cached(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	dirs, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "k8s.io", "apiserver@v0.*"))
	require.NoError(t, err)
	before, after := 0, 0
	byMinor := make(map[int]string)
	for _, d := range dirs {
		_, version, _ := strings.Cut(filepath.Base(d), "@v0.")
		digits, _, _ := strings.Cut(version, ".")
		minor, err := strconv.Atoi(digits)
		switch {
		case err != nil || minor < 22:
			continue // Before 1.22, etcd's client had another import path.
		case minor <= 31:
			before = max(before, minor)
		case after == 0 || minor < after:
			after = minor
		}
		byMinor[minor] = "1." + version
	}
	var found []string
	for _, minor := range []int{before, after} {
		if v := byMinor[minor]; v != "" {
			found = append(found, v)
		}
	}
	return found
}

// Every part of the answer is read from the source: alter the source, and the answer is another.
func TestInAnAlteredSourceTheAnswerIsAnother(t *testing.T) {
	const client = "go.etcd.io/etcd/client/v3/kubernetes"
	in := func(pkg, file, from, to string) func(*source.Tree) *source.Tree {
		return func(tree *source.Tree) *source.Tree {
			return tree.With(pkg, file, func(src []byte) []byte {
				return []byte(strings.ReplaceAll(string(src), from, to))
			})
		}
	}
	tree := pinned(t)
	chain, err := tree.UpdateTransaction(t.Context())
	require.NoError(t, err)
	isTheUpdate(t, chain)
	for _, c := range []struct {
		name  string
		alter func(*source.Tree) *source.Tree
		check func(t *testing.T, chain source.Chain)
		err   []string
	}{
		{name: "the version is compared", alter: in(client, "client.go", "clientv3.ModRevision(", "clientv3.Version("),
			check: func(t *testing.T, c source.Chain) { assert.Equal(t, "version", c.If[0].FieldName()) }},
		{name: "a later revision will do", alter: in(client, "client.go", `"="`, `"<"`),
			check: func(t *testing.T, c source.Chain) { assert.Equal(t, "<", c.If[0].Operator) }},
		{name: "the caller expects something else", alter: in(etcd3, "store.go", "origState.rev, kubernetes.PutOptions", "latest(), kubernetes.PutOptions"),
			check: func(t *testing.T, c source.Chain) { assert.Equal(t, "latest()", c.If[0].Expects) }},
		{name: "nothing is read in the else branch", alter: in(client, "client.go", "clientv3.OpGet(key)", ""),
			check: func(t *testing.T, c source.Chain) { assert.Empty(t, c.Else) }},
		{name: "the caller does not ask for the value", alter: in(etcd3, "store.go", "GetOnFailure: true", "GetOnFailure: false"),
			check: func(t *testing.T, c source.Chain) { assert.Equal(t, source.No, c.Else[0].Sent) }},
		{name: "the then branch deletes", alter: in(client, "client.go", "clientv3.OpPut(", "clientv3.OpDelete("),
			check: func(t *testing.T, c source.Chain) { assert.Equal(t, "OpDelete", c.Then[0].Name) }},
		{name: "the value in the answer is not used", alter: in(etcd3, "store.go", "s.getState(ctx, txnResp.KV,", "s.getState(ctx, nil,"),
			check: func(t *testing.T, c source.Chain) { assert.Zero(t, c.Retry.Func) }},
		{name: "the retry reads again", alter: in(etcd3, "store.go", "if !txnResp.Succeeded {", "if !txnResp.Succeeded {\ngetCurrentState()\n"),
			check: func(t *testing.T, c source.Chain) {
				assert.Equal(t, "(*store).getCurrentState", c.Retry.SecondRead)
				assert.Contains(t, c.String(), "after a second read by (*store).getCurrentState")
			}},
		{name: "there is no comparison", alter: in(client, "client.go", "txn := k.KV.Txn(ctx).If(", "txn := k.KV.Txn(ctx)\n_ = append([]clientv3.Cmp{}, "),
			err: []string{"(*store).GuaranteedUpdate", "has no comparison", "kubernetes/client.go Client.OptimisticPut"}},
		{name: "the client has no such method", alter: in(client, "client.go", "OptimisticPut(", "HopefulPut("),
			err: []string{"calls Interface.OptimisticPut (pkg/storage/etcd3/store.go:", "no type that leads to etcd implements it"}},
		{name: "the function has another name", alter: in(etcd3, "store.go", ") GuaranteedUpdate(", ") GuaranteedUpdates("),
			err: []string{"breaks where it begins", "nearest there: (*store).GuaranteedUpdates"}},
		{name: "the client is not called", alter: in(etcd3, "store.go", "s.client.Kubernetes.OptimisticPut", "elsewhere"),
			err: []string{"nothing that it calls builds a transaction", "look in pkg/storage/etcd3/store.go"}},
		{name: "the edit finds nothing", alter: in(etcd3, "store.go", "no such words", ""),
			err: []string{"the edit of pkg/storage/etcd3/store.go changed nothing"}},
		{name: "the file is not there", alter: in(etcd3, "shop.go", "a", "b"),
			err: []string{"no file shop.go to edit in package " + etcd3}},
		{name: "the edit does not parse", alter: in(etcd3, "store.go", "package etcd3", "packet etcd3"),
			err: []string{"parsing package " + etcd3, "pkg/storage/etcd3/store.go:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain, err := c.alter(tree).UpdateTransaction(t.Context())
			if c.err == nil {
				require.NoError(t, err)
				c.check(t, chain)
				return
			}
			require.Error(t, err)
			t.Log(err)
			for _, s := range c.err {
				assert.ErrorContains(t, err, s)
			}
		})
	}
	after, err := tree.UpdateTransaction(t.Context())
	require.NoError(t, err)
	assert.Equal(t, chain, after, "the tree itself is not altered")
}

func TestATreeIsSafeForConcurrentUse(t *testing.T) {
	tree := pinned(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := tree.Find(t.Context(), source.Decl("k8s.io/apimachinery/pkg/api/errors", "NewConflict"))
			assert.NoError(t, err)
			_, err = tree.UpdateTransaction(t.Context())
			assert.NoError(t, err)
			_, err = tree.With(etcd3, "store.go", func(src []byte) []byte { return append(src, '\n') }).UpdateTransaction(t.Context())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
}

func TestThePinnedVersionNeedsNoNetwork(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	short, err := source.Pinned("1.37")
	require.NoError(t, err)
	for _, version := range []string{short.Version(), strings.TrimPrefix(short.Version(), "v")} {
		tree, err := source.For(t.Context(), version)
		require.NoError(t, err)
		assert.Equal(t, short.Version(), tree.Version())
		_, err = tree.UpdateTransaction(t.Context())
		require.NoError(t, err)
	}
}

func TestAVersionWithoutSourceSaysSo(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	for version, says := range map[string]string{
		"v1.34.4":         "kube-apiserver v1.34.4 is not pinned, and its source could not be downloaded",
		"v1.37.0-rc.1":    "kube-apiserver v1.37.0-rc.1 is not pinned, and its source could not be downloaded",
		"v1.34.4+k3s1":    "does not name a release of Kubernetes",
		"v1.34.4-gke.100": "does not name a release of Kubernetes",
		"v1.34":           "does not name a release of Kubernetes",
	} {
		_, err := source.For(t.Context(), version)
		require.ErrorIs(t, err, source.ErrNoSource, version)
		assert.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "\n")
	}
	tree, err := source.For(t.Context(), pinned(t).Version())
	require.NoError(t, err)
	_, err = tree.UpdateTransaction(t.Context())
	require.ErrorIs(t, err, source.ErrNoSource)
	assert.NotContains(t, err.Error(), "\n")
	_, err = tree.Find(t.Context(), source.Decl("k8s.io/client-go/util/retry", "DefaultRetry"))
	require.ErrorIs(t, err, source.ErrNoSource)
	t.Log(err)
}

func TestGivingUpIsNotTheSameAsHavingNoSource(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := source.For(ctx, "1.34.4")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, source.ErrNoSource)
	_, err = pinned(t).UpdateTransaction(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, source.ErrNoSource)
	_, err = pinned(t).Find(ctx, source.Decl(etcd3, "(*store).Create"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, source.ErrNoSource)
}

func TestAVersionThatIsNotPinnedIsNotTakenForAnother(t *testing.T) {
	for version, says := range map[string]string{
		"v1.37.999": "v1.37.999 is not pinned here: helpers/kubeapiserver/v1.37 pins v1.37.",
		"1.20":      "v1.20 is not pinned here: there is no module in helpers/kubeapiserver/v1.20",
		"newest":    `not a version of Kubernetes: write it as v1.37 or v1.37.2`,
	} {
		_, err := source.Pinned(version)
		require.ErrorContains(t, err, says)
	}
}

func TestOutsideOfTheRepositoryThereIsNoSource(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := source.Pinned("v1.37")
	require.ErrorContains(t, err, "run this inside the repository")
}
