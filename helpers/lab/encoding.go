package lab

import (
	"bytes"
	gojson "encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// protobufMagic is what precedes an object that is stored as protobuf
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

// DecodeStored decodes type and metadata of an object as it lies in etcd, and says in which encoding it is:
// "protobuf" or "JSON".
func DecodeStored(stored []byte) (o *metav1.PartialObjectMetadata, encoding string, err error) {
	o = &metav1.PartialObjectMetadata{}
	raw, ok := bytes.CutPrefix(stored, protobufMagic)
	if !ok {
		if err := gojson.Unmarshal(stored, o); err != nil {
			return nil, "", fmt.Errorf("it is neither protobuf nor JSON: %w", err)
		}
		return o, "JSON", nil
	}
	var typed runtime.Unknown
	if err := typed.Unmarshal(raw); err != nil {
		return nil, "", fmt.Errorf("reading the type: %w", err)
	}
	// Whatever the kind, the metadata is the first field.
	if err := o.Unmarshal(typed.Raw); err != nil {
		return nil, "", fmt.Errorf("reading the metadata: %w", err)
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: typed.APIVersion, Kind: typed.Kind}
	return o, "protobuf", nil
}

// OtherEncoding is a stored object in another encoding than kube-apiserver gives it, with the same content:
// protobuf becomes JSON. JSON, in which custom resources are stored, only gets one more space.
func OtherEncoding(stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, protobufMagic) {
		return append(slices.Clone(stored), ' '), nil
	}
	asJSON := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{})
	out, err := encodeStored(stored, asJSON)
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
	asProtobuf := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	out, err := encodeStored(stored, asProtobuf, func(o metav1.Object) { o.SetResourceVersion(token) })
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

// EditStored changes the fields of a stored object of one of Kubernetes' own kinds, as they stand in JSON, and encodes
// it as protobuf.
func EditStored(stored []byte, edit func(fields map[string]any)) ([]byte, error) {
	o, kind, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading a stored object: %w", err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("taking a stored object apart: %w", err)
	}
	edit(fields)
	changed, err := scheme.Scheme.New(*kind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, changed); err != nil {
		return nil, fmt.Errorf("putting a stored object together: %w", err)
	}
	changed.GetObjectKind().SetGroupVersionKind(*kind)
	return runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), changed)
}
