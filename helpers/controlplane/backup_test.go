package controlplane_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/controlplane"
)

func TestABackupIsRestoredBelowAKubeApiserverAndForANewOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	control, err := controlplane.Start(ctx, controlplane.Options{APIServerPath: binary(t)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, control.Stop(context.WithoutCancel(ctx))) }()
	maps := clientFor(t, control.Admin()).CoreV1().ConfigMaps("default")
	create := func(name string) {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("before")
	backup := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, control.Backup(ctx, backup))
	assert.ErrorContains(t, control.Backup(ctx, backup), "making a backup of etcd", "a backup is not written over another")
	create("after")

	for range 2 {
		require.NoError(t, control.Rewind(ctx, controlplane.Restore{Backup: backup}))
		_, err = maps.Get(ctx, "before", metav1.GetOptions{})
		require.NoError(t, err, "the kube-apiserver that runs reads what the backup has")
		_, err = maps.Get(ctx, "after", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "what was written after the backup is gone: %v", err)
		create("after")
	}

	restored, err := controlplane.Start(ctx, controlplane.Options{
		APIServerPath: binary(t), Restore: &controlplane.Restore{Backup: backup, Bump: 1_000_000},
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, restored.Stop(context.WithoutCancel(ctx))) }()
	maps = clientFor(t, restored.Admin()).CoreV1().ConfigMaps("default")
	before, err := maps.Get(ctx, "before", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Less(t, len(before.ResourceVersion), len("1000000"), "what is restored keeps its number")
	create("after")
	after, err := maps.Get(ctx, "after", metav1.GetOptions{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(after.ResourceVersion), len("1000000"), "what is written gets a number beyond the bump")
}

func TestABackupThatIsNoneIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	_, err := controlplane.Start(t.Context(), controlplane.Options{
		APIServerPath: binary(t), Restore: &controlplane.Restore{Backup: path},
	})
	require.ErrorContains(t, err, "restoring etcd from the backup "+path)
	_, err = controlplane.Start(t.Context(), controlplane.Options{
		APIServerPath: binary(t), DataDir: t.TempDir(), Restore: &controlplane.Restore{Backup: path},
	})
	require.ErrorContains(t, err, "leave DataDir empty")
}

func TestFlagsReachKubeApiserver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := shared.get(t).StartAPIServer(ctx, controlplane.APIServerOptions{
		Flags: map[string]string{"encryption-provider-config": "/nowhere"},
	})
	require.ErrorContains(t, err, "/nowhere")
}
