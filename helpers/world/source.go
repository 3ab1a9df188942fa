package world

import (
	"bytes"
	"path"
	"regexp"

	"modrev/helpers/lab"
	"modrev/helpers/source"
)

// The worlds of this file bend what the upstream source says, in the function that builds the compare of an update.

// TheSourceComparesTheVersion has it compare the version of the key.
var TheSourceComparesTheVersion = New("the source compares the version of the key", func(l *lab.Lab) {
	bendCompare(l, func(src []byte) []byte {
		return bytes.ReplaceAll(src, []byte("ModRevision("), []byte("Version("))
	})
})

// TheSourceAsksForLess has it ask for a smaller revision instead of an equal one.
var TheSourceAsksForLess = New("the source asks for less and not for equality", func(l *lab.Lab) {
	bendCompare(l, func(src []byte) []byte { return bytes.ReplaceAll(src, []byte(`"="`), []byte(`"<"`)) })
})

// TheSourceDeletes has it delete in the then branch.
var TheSourceDeletes = New("the source lets the then branch delete", func(l *lab.Lab) {
	bendCompare(l, func(src []byte) []byte { return bytes.ReplaceAll(src, []byte("OpPut("), []byte("OpDelete(")) })
})

// TheSourceHasNoElse takes the else branch out of it.
var TheSourceHasNoElse = New("the source gives the transaction no else branch", func(l *lab.Lab) {
	bendCompare(l, func(src []byte) []byte {
		src = elseAlone.ReplaceAll(src, nil)
		return elseInChain.ReplaceAll(src, []byte(")"))
	})
})

var (
	elseAlone   = regexp.MustCompile(`\w+ = \w+\.Else\([^\n]*\)\n`)       // since Kubernetes 1.32
	elseInChain = regexp.MustCompile(`\)\.Else\(\s*[\w.]+\(\w+\),?\s*\)`) // up to 1.31
)

// bendCompare edits the file of the upstream source in which the compare of an update stands.
func bendCompare(l *lab.Lab, edit func(src []byte) []byte) {
	lab.SourceHook.Bend(l, func(tree *source.Tree) *source.Tree {
		chain, err := tree.UpdateTransaction(l.Context())
		if err != nil || len(chain.If) == 0 {
			return tree // the lesson, too, will find this out
		}
		at := chain.If[0].At
		return tree.With(path.Join(at.Module, path.Dir(at.File)), path.Base(at.File), edit)
	})
}
