package ledger

// gone are ids that the book had once, each with where its claim stands now: people link to them.
var gone = []struct{ id, to, why string }{
	{"CF16", "OT25b", "an apply that names the uid does not bring back what is gone"},
	{"ML2", "ML1", "labels repeat, whatever the modulus"},
	{"ML5d", "ML5b", "a trace of your own is played with -replay there"},
	{"OT10c", "CF7b, CF8c", "a stale token in an apply is a stale token, and force does not help"},
	{"OT26", "CF6b", "a replace brings a deleted object back where updates create"},
	{"OT27", "OT5b", "a retry repeats a decision or makes it anew"},
	{"OT30", "GU4b", "an apply without a token is decided anew when it is overtaken"},
	{"OT31", "GU6c", "an apply that repeats itself writes nothing"},
}
