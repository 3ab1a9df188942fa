package lab

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Owners reads metadata.managedFields: who owns which fields of an object, as a table shows it: "ann by Apply: color,
// size". A field is named by its last name, and only if it has a value of its own.
func (l *Lab) Owners(o metav1.Object) []string {
	var out []string
	for _, entry := range o.GetManagedFields() {
		out = append(out, ownerOf(entry)+": "+strings.Join(l.fieldsOf(entry), ", "))
	}
	return out
}

// OwnersOf says who owns one field, named as Owners names it: "ann by Apply, bob by Update", or "nobody".
func (l *Lab) OwnersOf(o metav1.Object, field string) string {
	var out []string
	for _, entry := range o.GetManagedFields() {
		if slices.Contains(l.fieldsOf(entry), field) {
			out = append(out, ownerOf(entry))
		}
	}
	if len(out) == 0 {
		return "nobody"
	}
	return strings.Join(out, ", ")
}

// ownerOf is who owns the fields of an entry: "ann by Apply", or "human by Update of /scale".
func ownerOf(entry metav1.ManagedFieldsEntry) string {
	owner := entry.Manager + " by " + string(entry.Operation)
	if entry.Subresource != "" {
		owner += " of /" + entry.Subresource
	}
	return owner
}

func (l *Lab) fieldsOf(entry metav1.ManagedFieldsEntry) []string {
	var set fieldpath.Set
	if entry.FieldsV1 != nil {
		l.Step(set.FromJSON(entry.FieldsV1.GetRawReader()), "reading the managed fields of "+entry.Manager)
	}
	var out []string
	for path := range set.Leaves().All() {
		out = append(out, strings.TrimPrefix(path[len(path)-1].String(), "."))
	}
	return out
}
