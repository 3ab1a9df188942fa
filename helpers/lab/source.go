package lab

import (
	"errors"

	"modrev/helpers/source"
)

// Source is the upstream source of the kube-apiserver that the book runs, as the world of this lab has it
// (see BendSource). The lesson is skipped when that source is not to be had, which can happen with a
// prebuilt kube-apiserver of a version that is not pinned.
func (l *Lab) Source() *source.Tree {
	tree, err := l.session.Source(l.ctx)
	l.unread(err)
	for _, edit := range l.sourceEdits {
		tree = edit(tree)
	}
	return tree
}

// BendSource has Source return what edit makes of the tree: the world in which the source says something
// else. The edit is made in memory, for this lab only (see [source.Tree.With]).
func (l *Lab) BendSource(edit func(*source.Tree) *source.Tree) {
	l.sourceEdits = append(l.sourceEdits, edit)
}

// UpdateTransaction is the chain from GuaranteedUpdate to etcd's compare, as the source of the lab has it.
func (l *Lab) UpdateTransaction() source.Chain {
	chain, err := l.Source().UpdateTransaction(l.ctx)
	l.unread(err)
	return chain
}

// unread ends the lesson when the source could not be read.
func (l *Lab) unread(err error) {
	if errors.Is(err, source.ErrNoSource) {
		l.Skip(err.Error())
	}
	l.Step(err, "reading the upstream source")
}
