// Package source finds declarations in the upstream source and reads what an update says there.
//
// A [Ref] names a declaration without looking at anything. A [Tree] is the source that one version of
// kube-apiserver is built from: it finds where a Ref is declared, and quotes the lines by which an
// update is compared in etcd. The source is read from the reader's module cache; none of it is here.
package source

import "fmt"

// Ref names one declaration of an upstream package.
type Ref struct {
	// Package is the import path, such as "k8s.io/apiserver/pkg/storage/etcd3".
	Package string
	// Func is the declaration as Go writes it: "NewConflict" for a function, a type, a variable or
	// a constant, "(*Store).Update" for a method, "Preconditions.UID" for a method of an interface
	// or a field of a struct. Whether a receiver is a pointer does not matter for finding it.
	Func string
}

// Decl is the reference to a declaration of the package pkg; its name is as in [Ref]. Nothing is looked
// up: a name that does not exist is found out by [Tree.Find].
func Decl(pkg, name string) Ref { return Ref{Package: pkg, Func: name} }

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String is the reference without version and file, such as
// "k8s.io/apiserver/pkg/storage/etcd3 (*store).GuaranteedUpdate".
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	return r.Package + " " + r.Func
}

// Location is where a declaration stands in the source of one version.
type Location struct {
	// Module and Version are the module that holds the file, such as "k8s.io/apiserver" "v0.37.2".
	Module, Version string
	// File is the path below the root of the module, with forward slashes.
	File string
	// Func is the declaration with the receiver that it has there: "(*store).Create" where it is a
	// pointer, "Client.OptimisticPut" where it is not.
	Func string
	// Line is counted from 1.
	Line int
}

// String is the location without its line, because lines move with every release:
// "k8s.io/apiserver v0.37.2 pkg/storage/etcd3/store.go (*store).GuaranteedUpdate".
func (l Location) String() string {
	return fmt.Sprintf("%s %s %s %s", l.Module, l.Version, l.File, l.Func)
}

// Position is the file and the line, such as "pkg/storage/etcd3/store.go:489".
func (l Location) Position() string { return fmt.Sprintf("%s:%d", l.File, l.Line) }
