package lab

import (
	"bytes"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// OtherEncoding is a stored object in another encoding than kube-apiserver gives it, with the same content:
// protobuf becomes JSON. JSON, in which custom resources are stored, only gets one more space.
func OtherEncoding(stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, protobufMagic) {
		return append(slices.Clone(stored), ' '), nil
	}
	out, err := encodeStored(stored, json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}))
	if err != nil {
		return nil, fmt.Errorf("encoding a stored object as JSON: %w", err)
	}
	return out, nil
}

// AsProtobuf is a stored object of one of Kubernetes' own kinds as kube-apiserver encodes it.
func AsProtobuf(stored []byte) ([]byte, error) {
	out, err := encodeStored(stored, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme))
	if err != nil {
		return nil, fmt.Errorf("encoding a stored object as protobuf: %w", err)
	}
	return out, nil
}

// WithStoredToken is a stored object of one of Kubernetes' own kinds that holds a resourceVersion, as
// protobuf.
func WithStoredToken(stored []byte, token string) ([]byte, error) {
	out, err := encodeStored(stored, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), func(o metav1.Object) { o.SetResourceVersion(token) })
	if err != nil {
		return nil, fmt.Errorf("putting a resourceVersion into a stored object: %w", err)
	}
	return out, nil
}

func encodeStored(stored []byte, as runtime.Encoder, edits ...func(metav1.Object)) ([]byte, error) {
	o, kind, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(*kind)
	for _, edit := range edits {
		accessor, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		edit(accessor)
	}
	return runtime.Encode(as, o)
}

// Reencode puts an object into etcd in another encoding, see [OtherEncoding], behind kube-apiserver's back.
// It returns the object as the API then serves it, once kube-apiserver's cache has it.
func (l *Lab) Reencode(o *Object) *Object {
	return l.rewrite(o, OtherEncoding)
}
