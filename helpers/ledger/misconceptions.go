package ledger

// misconception is something that people in public took for true, and were bitten.
type misconception struct {
	number int
	text   string
	// unanswered says why no lesson answers it, where none does.
	unanswered string
}

// misconceptions are those that the book answers. A lesson names those that it answers by number; the
// ledger lists them all with their lessons.
func misconceptions() []misconception {
	return []misconception{
		{1, "the newest resourceVersion on my copy makes the write safe", ""},
		{2, "a conflict means that the token is stale, so renew the token", ""},
		{3, "a patch cannot be conditional; use If-Match", ""},
		{5, "a failed JSON Patch test is a conflict", ""},
		{6, "409 proves that somebody else wrote", ""},
		{7, "AlreadyExists after a retry is a failure, or a success", ""},
		{8, "the server did not answer, so nothing happened", ""},
		{9, "apply is an update: it cannot bring a deleted object back", ""},
		{11, "StorageError: invalid object is a fault of the storage", ""},
		{13, "a delete may be repeated: it is idempotent", ""},
		{14, "a uid precondition protects what I decided on", ""},
		{15, "a patch does away with conflicts", ""},
		{17, "the library sends a diff, so it sends only my change", ""},
		{18, "a replace() that fetches the token by itself is compare-and-swap", ""},
		{19, "contention makes patches conflict; or the server retries five times", ""},
		{20, "the server loses its own race and lets the 409 out", ""},
		{21, "a resourceVersion in an apply is inert, or force overrides it", ""},
		{22, "every 409 is worth a retry", ""},
		{23, "RetryOnConflict reads again for me", ""},
		{24, "to read again is enough, wherever I read", ""},
		{26, "retry locally until it sticks", ""},
		{27, "tokens can be ordered as text", ""},
		{28, "a resourceVersion is always a number", ""},
		{29, "a lower number is an error, and a retry mends it", ""},
		{30, "tokens may never be compared, or always could be", ""},
		{31, "a conflict about resourcequotas means that my object conflicts, or that the quota is exceeded", ""},
		{32, "a name that is taken is always answered with 409", ""},
		{33, "the resourceVersion is optional in a replace; or it is mandatory", ""},
		{35, "a token that is newer than the object gets in", ""},
		{36, "a resourceVersion in a manifest is inert", ""},
		{38, "a PUT creates what is missing; or it never does", ""},
		{39, "a delete that was answered with 200 means that the object is gone", ""},
		{40, "Forbidden in the text means a missing permission", ""},
		{41, "an object that is being deleted is frozen", ""},
		{44, "the generation of a custom resource follows its spec, always", ""},
		{45, "every object has a generation", ""},
		{46, "the status has a version of its own", ""},
		{47, "200 means that it was stored", ""},
		{50, "the same tool is the same owner of a field", ""},
		{51, "a manager cannot conflict with its own name", ""},
		{52, "force settles a conflict once; leaving a field out leaves it alone", ""},
		{54, "no change means no write; or every apply is a write", ""},
		{55, "every accepted PUT is a new version", ""},
		{56, "the object changed, so its content did", ""},
		{57, "a watch without a number delivers only what comes; with 0, all from the beginning", ""},
		{58, "go on from the largest number among the items", ""},
		{60, "410 will pass if I try again", ""},
		{61, "504 means that the server is overloaded", ""},
		{62, "a read is always current", ""},
		{64, "a continue token lives as long as I page", ""},
		{65, "what a resourceVersion means on reading comes from Kubernetes, whatever the store", ""},
		{66, "to put my own answer into the informer's store makes it current", ""},
		{67, "what my cache does not have does not exist", ""},
		{68, "a create that timed out created nothing", ""},
		{69, "AlreadyExists is the end", ""},
		{70, "409 has one meaning", ""},
		{72, "the reason of a refusal says whether to repeat it", ""},
		{73, "of two applies on the client's side the last wins", ""},
		{74, "writers of one object need a lock", ""},
		{75, "a record of what I did outside may be written after it, as well as it goes", ""},
		{76, "the fakes of a client library are the server", ""},
		{77, "a conflict is a malfunction", ""},
		{78, "an aggregated apiserver gives me the semantics of the built-in one",
			"it would take an aggregated apiserver with a fault of its own"},
		{80, "restarting the client clears a conflict that the server causes",
			"nobody has reported a way to make it happen with one apiserver and one etcd"},
	}
}
