// Package modular is the modular counter of the last chapter: Reset, Step, and labels that wrap.
//
// It is a warning and no model of anything: its labels look like numbers, and promise nothing that numbers
// promise.
package modular

import (
	"fmt"
	"math/bits"
)

// Counter has a label, which is a number from 0 up to but not including m. Each Step adds a to it, modulo
// m. Reset makes one; the zero Counter has the single label 0.
type Counter struct {
	m, a, label int64
}

// Reset is a counter modulo m that goes a at a time and stands at 0. m is at least 1, and a is not
// negative; an a of m or more goes as far as what is left of it modulo m.
func Reset(m, a int64) (*Counter, error) {
	if m < 1 {
		return nil, fmt.Errorf("there are no labels modulo %d: m must be 1 or more", m)
	}
	if a < 0 {
		return nil, fmt.Errorf("the counter cannot go back by %d: a must be 0 or more", a)
	}
	return &Counter{m: m, a: a % m}, nil
}

// Label is where the counter stands.
func (c *Counter) Label() int64 { return c.label }

// Step goes on by a and returns the new label.
func (c *Counter) Step() int64 {
	c.label = add(c.label, c.a, c.m)
	return c.label
}

// add is x + y modulo m, for x and y from 0 up to but not including m.
func add(x, y, m int64) int64 {
	// x + y may be more than an int64 holds; x - (m - y) is the same modulo m, and never is.
	if x >= m-y {
		return x - (m - y)
	}
	return x + y
}

// After is the label that n further steps lead to, found without taking any: label + n·a modulo m. A negative n
// goes back.
func (c *Counter) After(n int64) int64 {
	if c.m == 0 {
		return c.label // the zero Counter
	}
	if n %= c.m; n < 0 {
		n += c.m
	}
	// n and a are less than m, so their product fits in two words, and the quotient in one.
	high, low := bits.Mul64(uint64(n), uint64(c.a))
	_, way := bits.Div64(high, low, uint64(c.m))
	return add(c.label, int64(way), c.m)
}

// Period is after how many steps the labels of a counter repeat: m / gcd(a, m). It takes an m and an a that
// [Reset] accepts.
func Period(m, a int64) int64 { return m / gcd(a%m, m) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
