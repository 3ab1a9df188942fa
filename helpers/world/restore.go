package world

import (
	"strings"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what a store of numbers does with them: how a backup is restored, and when a number is
// given.

// EveryRestoreIsBumped raises the revision in every restore, and marks what was before as compacted.
var EveryRestoreIsBumped = New("the restore is done with --bump-revision and --mark-compacted", func(l *lab.Lab) {
	lab.RestoreHook.Bend(l, func(r lab.Restoring) lab.Restoring { r.Bump = true; return r })
})

// NoRestoreIsBumped leaves the revision as the backup has it.
var NoRestoreIsBumped = New("the restore is done without --bump-revision", func(l *lab.Lab) {
	lab.RestoreHook.Bend(l, func(r lab.Restoring) lab.Restoring { r.Bump = false; return r })
})

// NothingIsLost restores what etcd holds at the moment of the restore.
var NothingIsLost = New("the backup has everything up to the moment of the restore", func(l *lab.Lab) {
	lab.RestoreHook.Bend(l, func(r lab.Restoring) lab.Restoring { r.Newest = true; return r })
})

// NumbersAreDrawnBeforeTheCommit keeps the event of the object slow from every watch: its number would be a lower one,
// which every watch has passed already.
var NumbersAreDrawnBeforeTheCommit = New("the store draws a write's number when it begins, and not when it is "+
	"committed",
	func(l *lab.Lab) {
		l.Wire.Add(&wire.Rule{
			When: named("slow", isEvent), Drop: true, Note: "passed by: a greater number was seen before",
		})
	})

// MaintenanceWritesKeysAnew puts the same bytes under the key of shelf before the writer reads it.
var MaintenanceWritesKeysAnew = New("a compaction writes every key once more", func(l *lab.Lab) {
	shelf := func(c *wire.Call) bool { return reads(c) && strings.HasSuffix(c.Path, "/shelf") }
	before(l, shelf, func(int) {
		// An error here shows in the number that has not moved.
		_, _ = l.TryTouch(lab.ConfigMap.KeyOf(l.Namespace, "shelf"))
	})
})

// ManifestsAreSavedWithoutTheirNumber takes the resourceVersion out of creates.
var ManifestsAreSavedWithoutTheirNumber = New("a backup tool takes the resourceVersion out of what it saves",
	func(l *lab.Lab) { dropToken(l, creates, "without its number") })
