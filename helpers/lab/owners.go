package lab

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Owner is one entry of metadata.managedFields.
type Owner struct {
	Manager     string
	Operation   string // "Apply", or "Update" for every other way to write
	Subresource string // "" for the object itself
	Fields      []string
}

// String is the owner as a table shows it: "ann by Apply: color, size".
func (o Owner) String() string {
	s := o.Manager + " by " + o.Operation
	if o.Subresource != "" {
		s += " of /" + o.Subresource
	}
	return s + ": " + strings.Join(o.Fields, ", ")
}

// Owners reads metadata.managedFields: who owns which fields of an object, each entry with the fields that
// have a value of their own, by their last name.
func (l *Lab) Owners(o metav1.Object) []Owner {
	var out []Owner
	for _, entry := range o.GetManagedFields() {
		owner := Owner{Manager: entry.Manager, Operation: string(entry.Operation), Subresource: entry.Subresource}
		var set fieldpath.Set
		if entry.FieldsV1 != nil {
			l.Step(set.FromJSON(entry.FieldsV1.GetRawReader()), "reading the managed fields of "+o.GetName())
		}
		for path := range set.Leaves().All() {
			last := path[len(path)-1].String()
			owner.Fields = append(owner.Fields, strings.TrimPrefix(last, "."))
		}
		out = append(out, owner)
	}
	return out
}

// OwnersOf says who owns one field, named as Owners names it: "ann by Apply, bob by Update", or "nobody".
func (l *Lab) OwnersOf(o metav1.Object, field string) string {
	var out []string
	for _, owner := range l.Owners(o) {
		for _, f := range owner.Fields {
			if f == field {
				owner.Fields = nil
				out = append(out, strings.TrimSuffix(owner.String(), ": "))
			}
		}
	}
	if len(out) == 0 {
		return "nobody"
	}
	return strings.Join(out, ", ")
}
