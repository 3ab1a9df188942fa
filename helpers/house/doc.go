// Package house holds the rules of this repository's structure, as tests: which package may import which, how long
// files and lines are, and that the lab and the worlds export nothing that nobody uses.
package house
