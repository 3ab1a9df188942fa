package lab

import (
	"errors"

	"modrev/helpers/source"
)

// SourceHook is what [Lab.UpdateTransaction] makes of the upstream source: nothing. A world edits it in memory (see
// [source.Tree.With]).
var SourceHook = Hook[func(*source.Tree) *source.Tree]{func(tree *source.Tree) *source.Tree { return tree }}

// upstream is the source of the kube-apiserver that the book runs, as the world of this lab has it.
// The lesson is skipped when that source is not to be had, which can happen with a prebuilt kube-apiserver of
// a version that is not pinned.
func (l *Lab) upstream() *source.Tree {
	tree, err := l.session.Source(l.ctx)
	l.unread(err)
	return SourceHook.in(l)(tree)
}

// UpdateTransaction is what the source of the lab says of an update, from GuaranteedUpdate to etcd's compare.
func (l *Lab) UpdateTransaction() source.Update {
	update, err := l.upstream().UpdateTransaction(l.ctx)
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
