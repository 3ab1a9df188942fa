package token

// Kind is a kind of objects, by the two rules in which kinds differ.
type Kind string

// The kinds that the model knows, one for each combination of the rules that matters here. The rules are the
// AllowUnconditionalUpdate and AllowCreateOnUpdate of each kind's strategy: k8s.io/kubernetes
// pkg/registry/core/configmap and pkg/registry/coordination/lease, k8s.io/apiextensions-apiserver
// pkg/registry/customresource.
const (
	ConfigMap      Kind = "configmap"      // a replace may come without a token and then overwrites
	Lease          Kind = "lease"          // a replace needs a token, unless it creates the object
	CustomResource Kind = "customresource" // a replace needs a token and an object
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{ConfigMap, Lease, CustomResource} }

// NeedsToken reports whether a replace without a token is refused. The zero Kind is a ConfigMap.
func (k Kind) NeedsToken() bool { return k == Lease || k == CustomResource }

// CreatesOnReplace reports whether a replace of an absent object creates it.
func (k Kind) CreatesOnReplace() bool { return k == Lease }
