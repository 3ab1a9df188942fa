package lab

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Double is something that takes ConfigMaps as kube-apiserver does, or pretends to.
type Double struct {
	Name            string
	Create, Replace func(*Object) (*Object, error)
}

// Where each of the [Lab.Doubles] stands.
const (
	DynamicFake    = 1 // client-go's
	ControllerFake = 2 // controller-runtime's
)

// DoublesHook is what happens to the [Lab.Doubles] before a lesson gets them: nothing.
var DoublesHook = Hook[func([]Double)]{func([]Double) {}}

// Doubles are kube-apiserver itself and the fakes that tests of controllers are commonly written against.
func (l *Lab) Doubles() []Double {
	scheme := runtime.NewScheme()
	l.Step(corev1.AddToScheme(scheme), "making a scheme for the fakes")
	inMemory := dynamicfake.NewSimpleDynamicClient(scheme).Resource(ConfigMap.GVR()).Namespace(l.Namespace)
	built := fake.NewClientBuilder().WithScheme(scheme).Build()
	doubles := []Double{
		{
			Name:    "kube-apiserver",
			Create:  l.TryCreateObject,
			Replace: func(o *Object) (*Object, error) { return l.TryReplace(o) },
		}, {
			Name:    "client-go's dynamic fake",
			Create:  func(o *Object) (*Object, error) { return inMemory.Create(l.ctx, o, metav1.CreateOptions{}) },
			Replace: func(o *Object) (*Object, error) { return inMemory.Update(l.ctx, o, metav1.UpdateOptions{}) },
		}, {
			Name:    "controller-runtime's fake",
			Create:  func(o *Object) (*Object, error) { o = o.DeepCopy(); return o, built.Create(l.ctx, o) },
			Replace: func(o *Object) (*Object, error) { o = o.DeepCopy(); return o, built.Update(l.ctx, o) },
		},
	}
	DoublesHook.in(l)(doubles)
	return doubles
}
