package lab

import (
	"errors"

	"modrev/helpers/source"
)

// Source is the upstream source of the kube-apiserver that the book runs, as the world of this lab has it
// (see BendSource). The lesson is skipped when that source is not to be had, which can happen with a
// prebuilt kube-apiserver of a version that is not pinned.
func (l *Lab) Source() *source.Tree {
	tree, err := l.plane.Source(l.ctx)
	l.unread(err)
	for _, edit := range l.sourceEdits {
		tree = edit(tree)
	}
	return tree
}

// BendSource has Source return a tree in which each old in a package is a new: the world in which the source says
// something else. The edit is made in memory, for this lab only.
func (l *Lab) BendSource(pkg, old, new string) {
	l.sourceEdits = append(l.sourceEdits, func(tree *source.Tree) *source.Tree {
		return tree.With(l.ctx, pkg, old, new)
	})
}

// UpdateTransaction is what the source of the lab says of an update, from GuaranteedUpdate to etcd's compare.
func (l *Lab) UpdateTransaction() source.Update {
	update, err := l.Source().UpdateTransaction(l.ctx)
	l.unread(err)
	return update
}

// unread ends the lesson when the source could not be read.
func (l *Lab) unread(err error) {
	if errors.Is(err, source.ErrNoSource) {
		l.Skip(err.Error())
	}
	l.Step(err, "reading the upstream source")
}
