package world

import (
	"modrev/helpers/lab"
	"modrev/helpers/source"
)

// The worlds of this file bend what the upstream source says of an update.

// TheSourceComparesTheVersion has etcd's client compare the version of the key.
var TheSourceComparesTheVersion = New("the source compares the version of the key", func(l *lab.Lab) {
	bendSource(l, source.OptimisticPut, "ModRevision(", "Version(")
})

// TheSourceAsksForLess has it ask for a smaller revision instead of an equal one.
var TheSourceAsksForLess = New("the source asks for less and not for equality", func(l *lab.Lab) {
	bendSource(l, source.OptimisticPut, `"="`, `"<"`)
})

// TheSourceDeletes has it delete in the then branch.
var TheSourceDeletes = New("the source lets the then branch delete", func(l *lab.Lab) {
	bendSource(l, source.OptimisticPut, "OpPut(", "OpDelete(")
})

// TheSourceHasNoElse takes the else branch out of it.
var TheSourceHasNoElse = New("the source gives the transaction no else branch", func(l *lab.Lab) {
	bendSource(l, source.OptimisticPut, "txn = txn.Else(clientv3.OpGet(key))", "")
})

// TheSourceHandsOnNoRevision has GuaranteedUpdate hand on 0 as the expected revision.
var TheSourceHandsOnNoRevision = New("the source hands on no revision", func(l *lab.Lab) {
	bendSource(l, source.GuaranteedUpdate, "newData, origState.rev,", "newData, 0,")
})

// TheSourceReadsAgain has GuaranteedUpdate read the object again after a failed compare.
var TheSourceReadsAgain = New("the source reads again after a failed compare", func(l *lab.Lab) {
	bendSource(l, source.GuaranteedUpdate,
		`span.AddEvent("Retry value restored")`, "origState, err = getCurrentState()")
})

// bendSource has the package of a declaration say new wherever it says old.
func bendSource(l *lab.Lab, in source.Ref, old, new string) {
	lab.SourceHook.Bend(l, func(tree *source.Tree) *source.Tree {
		return tree.With(l.Context(), in.Package, old, new)
	})
}
