// Package world names the ways in which the book bends reality, so that each claim can be seen to fail.
//
// A World changes one thing, for the keys or the clients of one lesson only, and in flight: what a client
// sends, what etcd is asked, what etcd does, or what an answer says. The lesson itself is not edited.
//
// The worlds are filed by what is bent: a client, the way between it and kube-apiserver, kube-apiserver, etcd,
// the upstream source, the labels of the modular lab.
package world

import "modrev/helpers/lab"

// World is one way to bend reality.
type World struct {
	// Where completes the sentence "In a world where …".
	Where string
	// Bend puts the world in force in a lab before the lesson runs there.
	Bend func(*lab.Lab)
	// Sign is a regular expression for what the lesson must have OBSERVED there. It ties the failure to the
	// claim: a lesson that fails in this world for another reason is a defect.
	Sign string
}

// Shows is the same world with the sign by which the lesson's failure is recognized, a regular expression.
func (w World) Shows(sign string) World {
	w.Sign = sign
	return w
}

// IsZero says whether no world was given.
func (w World) IsZero() bool { return w.Bend == nil }

// New is a world of the caller's own.
func New(where string, bend func(*lab.Lab)) World {
	return World{Where: where, Bend: bend}
}
