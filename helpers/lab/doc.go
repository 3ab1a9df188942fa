// Package lab is what a lesson works with: a namespace of its own, clients, etcd, a rival, and the tape of the wire
// between kube-apiserver and etcd.
//
// A lesson gets a [Lab]. Its methods, and those of the [Client] in it, are the steps of the lesson:
//
//	act        Create, Get, Replace, Patch, Set, Delete, List, Watch, Recreate; with Try before the name they return
//	           the error of the API instead of ending the lesson
//	be others  Rival, As, AsUser, Stranger; Of a kind, Sub of an object, Typed and Controller for client libraries
//	define     CustomResource, Define and Redefine, Webhook, LimitConfigMaps
//	look       KV and TryKVAt (etcd's key), Peek (off the tape), Record (requests to etcd), Revision, Etcd
//	race       Race, Go and Until; Wire.Hold, Wire.Freeze and Wire.HoldWatches for what waits
//	disturb    LoseAnswer, GatewayAnswers, OnCable; CompactTo, Backup, AtSecondAPIServer
//	expect     Equal, Refused (with [Stale] or a [Refusal]), Accepted, Stored, Sends, Expect
//	tell       Say, Table, Show, Quote
//
// A step that cannot be done ends the lesson and says nothing about its claim; use testify's require for your own
// steps, the Lab is its TestingT. What a check refutes is the claim.
//
// For a question of your own, lesson.Look runs steps in a lab and prints the tape.
package lab
