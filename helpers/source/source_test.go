package source_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/source"
)

func TestRefsAreFoundInThePinnedSource(t *testing.T) {
	tree, err := source.Pinned(t.Context(), "1.37")
	require.NoError(t, err)
	for _, c := range []struct {
		ref   source.Ref
		where string
	}{
		{source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"), "k8s.io/apiserver v0.37.2 pkg/storage/etcd3/store.go (*store).GuaranteedUpdate"},
		{source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"), "k8s.io/apiserver v0.37.2 pkg/registry/generic/registry/store.go (*Store).Update"},
		{source.Func("k8s.io/apimachinery/pkg/api/errors", "NewConflict"), "k8s.io/apimachinery v0.37.2 pkg/api/errors/errors.go NewConflict"},
		{source.Func("k8s.io/client-go/util/retry", "DefaultRetry"), "k8s.io/client-go v0.37.2 util/retry/util.go DefaultRetry"},
		{source.Func("go.etcd.io/etcd/client/v3/kubernetes", "(*Client).OptimisticPut"), "go.etcd.io/etcd/client/v3 v3.7.0 kubernetes/client.go (Client).OptimisticPut"},
		{source.Func("go.etcd.io/etcd/client/v3/kubernetes", "Interface.OptimisticPut"), "go.etcd.io/etcd/client/v3 v3.7.0 kubernetes/interface.go Interface.OptimisticPut"},
		{source.Func("go.etcd.io/etcd/server/v3/storage/mvcc", "(*keyIndex).put"), "go.etcd.io/etcd/server/v3 v3.7.3 storage/mvcc/key_index.go (*keyIndex).put"},
		{source.Func("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"), "sigs.k8s.io/controller-runtime v0.25.2 pkg/client/patch.go MergeFromWithOptimisticLock"},
	} {
		at, err := tree.Find(c.ref)
		require.NoError(t, err)
		assert.Equal(t, c.where, at.String())
		assert.Positive(t, at.Line)
	}
	for _, bad := range []source.Ref{
		source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuarantedUpdate"),
		source.Func("k8s.io/apiserver/pkg/storage/etcd33", "x"),
		source.Func("example.org/none", "x"),
		source.Func("k8s.io/apimachinery/pkg/api/errors", "Zzzzzzzzzzzzz"),
	} {
		_, err := tree.Find(bad)
		t.Log(err)
		assert.Error(t, err)
	}
}
