package lab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
	"modrev/helpers/wire"
)

// BenchmarkPatchOverTheWire compares a PATCH whose way to etcd is recorded with one on a control plane
// without any interposition. The two are measured in turns, and the ratio is the median over the pairs.
func BenchmarkPatchOverTheWire(b *testing.B) {
	ctx := b.Context()
	binary, err := kubeapiserver.Find(ctx, kubeapiserver.Options{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	var w wire.Wire
	recorded := patcher(b, binary.Path, controlplane.Options{EtcdServerOptions: w.ServerOptions()}, &w)
	bare := patcher(b, binary.Path, controlplane.Options{}, nil)
	for i := range 200 { // the first requests pay for connections and caches
		recorded(i)
		bare(i)
	}
	ratios := make([]float64, 0, b.N)
	n := 200
	b.ResetTimer()
	for b.Loop() {
		n++
		var with, without time.Duration
		if n%2 == 0 {
			with, without = recorded(n), bare(n)
		} else {
			without, with = bare(n), recorded(n)
		}
		ratios = append(ratios, float64(with)/float64(without))
	}
	b.StopTimer()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "with/without")
	b.ReportMetric(0, "ns/op")
}

// patcher starts a control plane and returns a function that sends one patch to it and says how long that
// took. With a wire, the keys of the patched object are those of a lesson whose tape is on.
func patcher(b *testing.B, path string, o controlplane.Options, w *wire.Wire) func(i int) time.Duration {
	o.APIServerPath = path
	control, err := controlplane.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := control.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := control.Healthy(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := control.Admin()
	if w != nil {
		tap := w.Tap("bench-1")
		b.Cleanup(tap.Close)
		cfg.Wrap(tap.Transport("writer"))
	}
	api, err := dynamic.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := api.Resource(Namespace.GVR()).Create(b.Context(), Namespace.newObject("", "bench-1"),
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	shelves := api.Resource(ConfigMap.GVR()).Namespace("bench-1")
	if _, err := shelves.Create(b.Context(), ConfigMap.newObject("bench-1", "shelf"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return func(i int) time.Duration {
		body := []byte(`{"data":{"n":"` + strconv.Itoa(i) + `"}}`)
		began := time.Now()
		if _, err := shelves.Patch(b.Context(), "shelf", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
}

// BenchmarkLessonInAFullStore compares what a lesson costs when the store holds 10 objects of others and
// when it holds 10,000. The steps are those that lessons are made of.
func BenchmarkLessonInAFullStore(b *testing.B) {
	p := &Session{}
	b.Cleanup(func() {
		if err := p.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := p.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := p.Control().Healthy(b.Context()); err != nil {
		b.Fatal(err)
	}
	for range 20 {
		oneLesson(b, p)
	}
	fill(b, p, 0, 10)
	few := medianLesson(b, p)
	fill(b, p, 10, 10_000)
	for range 5 {
		oneLesson(b, p)
	}
	many := medianLesson(b, p)
	for b.Loop() {
		oneLesson(b, p)
	}
	b.ReportMetric(float64(many)/float64(few), "10000/10")
}

func medianLesson(b *testing.B, p *Session) time.Duration {
	const lessons = 41
	took := make([]time.Duration, lessons)
	for i := range took {
		took[i] = oneLesson(b, p)
	}
	slices.Sort(took)
	return took[lessons/2]
}

// oneLesson does what lessons do: a namespace, writes, a conflict, a forced race, a list, a watch.
func oneLesson(b *testing.B, p *Session) time.Duration {
	began := time.Now()
	l := New(b.Context(), p, "bench")
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		shelf := l.Create("shelf", "color=red")
		watch := l.Watch(shelf.GetResourceVersion())
		l.Rival().Set("shelf", "color=blue")
		_, err := l.TryReplace(shelf, "color=green")
		l.Refused(err, "a stale replace", Stale(shelf))
		fresh := l.Get("shelf")
		err = l.Race(l.Key(shelf), func() error {
			_, err := l.TryReplace(fresh, "color=green")
			return err
		}, func() { l.Rival().Set("shelf", "color=white") })
		l.Refused(err, "a raced replace", Stale(shelf))
		l.List()
		watch.Until(l.Get("shelf").GetResourceVersion())
	}()
	<-done
	if f := l.Told().Failure; f != nil {
		b.Fatalf("expected %s; observed %s", f.Expected, f.Observed)
	}
	return time.Since(began)
}

// fill puts ConfigMaps of others into the store, the same bytes under many names, and waits until the
// apiserver's cache has them.
func fill(b *testing.B, p *Session, from, to int) {
	l := New(b.Context(), p, "fill")
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		seed := l.Create("seed", "color=red")
		value := string(l.KV(seed).Value)
		for i := from; i < to; i += 100 {
			var puts []clientv3.Op
			for n := i; n < min(i+100, to); n++ {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("/registry/configmaps/others/n%06d", n), value))
			}
			_, err := l.Etcd().Txn(l.ctx).Then(puts...).Commit()
			l.Step(err, "filling the store")
		}
		l.List()
	}()
	<-done
	if f := l.Told().Failure; f != nil {
		b.Fatal(f.Observed)
	}
}
