package modular

import (
	"math"

	"pgregory.net/rapid"
)

// Draw draws the setting of a counter, for use in a property that rapid checks: an m from 1 to most and an a from
// 0 to m. When the property fails, rapid finds a small setting: it lowers m, and prefers an a that is close to m.
func Draw(t *rapid.T, most int64) (m, a int64) {
	m = number(1, most).Draw(t, "m")
	// Drawn by its distance from m, an a stays in range while rapid lowers m.
	a = rapid.Map(number(0, m), func(k int64) int64 { return m - k }).Draw(t, "a")
	return m, a
}

// number generates numbers from low to high. The range that rapid is given is larger, because it draws the end of
// a range often, and in a way that it cannot shrink.
func number(low, high int64) *rapid.Generator[int64] {
	return rapid.Int64Range(low, 8*min(high, math.MaxInt64/8)).Filter(func(n int64) bool { return n <= high })
}
