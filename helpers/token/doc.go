// Package token provides equality tokens: the model of a versioned register, traces to replay, and the check
// of concurrent histories.
//
// A resourceVersion is a token. Two tokens are equal or they are not; nothing else is known of them. The
// package holds to that: no rule of the model orders two tokens, counts with one or looks inside one.
//
//   - [Kind.Judge] is the model: what a server answers to one request, and what comes of it. [Model] is a
//     [Store] that obeys it.
//   - A [Trace] is a list of requests, as text that a person can read and write. [Replay] sends it to a Store,
//     [Trace.Check] compares the answers with what the trace expects, [Compare] sends it to two Stores at once
//     and says where they part. [Traces] are the ones that come with the package; [Draw] makes new ones.
//   - A [Recorder] writes down what concurrent clients sent and got, and [Check] says whether some order of
//     their requests explains every answer. A [Workload] is what such clients may do.
//
// # The format of a trace
//
// A trace is text, one request a line, and may have what the answer should be after an arrow:
//
//	# Two readers, one refused; it reads again, decides again, and writes.
//	kind configmap
//	alice: create shelf color=red         -> 201, t1
//	bob:   get shelf                      -> 200, t1
//	alice: replace shelf color=blue @t1   -> 200, t2
//	bob:   replace shelf color=green @t1  -> 409 Conflict
//	bob:   get shelf                      -> 200, t2 color=blue
//	bob:   replace shelf color=green @t2  -> 200, t3
//
// Empty lines count for nothing, and neither does anything from a # to the end of its line. (The comment above
// the first line is kept, as [Trace.About].) The first line says the kind of all objects of the trace:
//
//	kind configmap       a replace may come without a token; a replace of an absent object is 404
//	kind lease           a replace needs a token; a replace of an absent object creates it
//	kind customresource  a replace needs a token; a replace of an absent object is 404
//
// Every other line is a request: who sends it and a colon, a verb, the name of an object, and then, in any
// order:
//
//	color=red   a field and its value. In a create or replace these are all the fields of the object; in a
//	            patch, those that it sets.
//	-color      in a patch, a field that it removes
//	@t1         the token that this name was given to in a line above. In a replace or patch it is the
//	            resourceVersion in the body, in a delete it is a precondition.
//	@future     a token that the store has not given out yet
//	@foreign    the newest token of another object
//	@none       no token, which is what leaving it out means too
//	%u1         the uid that this name was given to in a line above. In a replace or patch it is the uid in the
//	            body, in a delete it is a precondition.
//
// The verbs are create, get, replace, patch (a JSON merge patch) and delete.
//
// What follows the arrow is optional, word by word. Words are separated by blanks or commas:
//
//	200         the HTTP status
//	Conflict    the reason; its first letter is a capital
//	t1          the token of the object in the answer. The first line that says t1 gives the token its name,
//	            and then it must be one that has no name yet; every later t1 means that very token.
//	u1          the uid of the object in the answer; the same holds for its name.
//	wrote       the request led to a storage write
//	unwritten   it did not
//	color=blue  the fields of the object in the answer. One means all: a field that is not listed must not be
//	            there.
//	empty       the object in the answer has no fields
//
// Names of clients, objects and fields are made of lower-case letters, digits and dashes and begin with a
// letter. Values are made of letters, digits, dashes, dots and underscores.
package token
