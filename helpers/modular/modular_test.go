package modular

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTheLabOfTheDocument(t *testing.T) {
	c, err := Reset(8, 1)
	require.NoError(t, err)
	labels := []int64{c.Label()}
	for range 8 {
		labels = append(labels, c.Step())
	}
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 0}, labels)
}

func TestABadModulusOrStepIsExplained(t *testing.T) {
	for _, m := range []int64{0, -1, math.MinInt64} {
		_, err := Reset(m, 1)
		require.ErrorContains(t, err, "m must be 1 or more")
	}
	for _, a := range []int64{-1, math.MinInt64} {
		_, err := Reset(8, a)
		require.ErrorContains(t, err, "a must be 0 or more")
	}
}

func TestTheZeroCounterStaysAtItsOnlyLabel(t *testing.T) {
	var c Counter
	require.Zero(t, c.Step())
	require.Zero(t, c.Label())
}

func TestStepIsAdditionModuloMForAnyInt64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Int64Range(1, math.MaxInt64).Draw(t, "m")
		a := rapid.Int64Range(0, math.MaxInt64).Draw(t, "a")
		c, err := Reset(m, a)
		if err != nil {
			t.Fatal(err)
		}
		want := new(big.Int)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			want.Mod(want.Add(want, big.NewInt(a)), big.NewInt(m))
			if got := c.Step(); got != want.Int64() {
				t.Fatalf("label %d, expected %v", got, want)
			}
		}
	})
}

func TestTheLabelsRepeatAfterThePeriodAndNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Int64Range(1, 200).Draw(t, "m")
		a := rapid.Int64Range(0, 500).Draw(t, "a")
		c, err := Reset(m, a)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{0: true}
		for n := int64(1); ; n++ {
			if label := c.Step(); !seen[label] {
				seen[label] = true
				continue
			}
			if c.Label() != 0 || n != Period(m, a) {
				t.Fatalf("label %d came again after %d steps, expected 0 after %d", c.Label(), n, Period(m, a))
			}
			return
		}
	})
}

func TestALabelIsPredictedWithoutTakingTheSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Int64Range(1, math.MaxInt64).Draw(t, "m")
		a := rapid.Int64Range(0, math.MaxInt64).Draw(t, "a")
		c, err := Reset(m, a)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "steps before") {
			c.Step()
		}
		n := rapid.Int64().Draw(t, "n")
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(a))
		want.Mod(want.Add(want, big.NewInt(c.Label())), big.NewInt(m))
		if got := c.After(n); got != want.Int64() {
			t.Fatalf("label %d, expected %v", got, want)
		}
		if got := c.After(1); got != c.Step() {
			t.Fatalf("predicted %d after one step, it is %d", got, c.Label())
		}
	})
	require.Zero(t, new(Counter).After(7))
}

// However large m and a are, the label of the start is back after a period, and after no smaller number of
// steps: a smaller one that did would divide the period.
func TestThePeriodIsTheFirstReturnForAnyInt64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Int64Range(1, math.MaxInt64).Draw(t, "m")
		a := rapid.Int64Range(0, math.MaxInt64).Draw(t, "a")
		c, err := Reset(m, a)
		if err != nil {
			t.Fatal(err)
		}
		period := Period(m, a)
		if period < 1 || period > m {
			t.Fatalf("a period of %d", period)
		}
		if c.After(period) != 0 {
			t.Fatalf("after a period of %d the label is %d", period, c.After(period))
		}
		d := rapid.Int64Range(1, 1000).Draw(t, "divisor")
		if d > 1 && period%d == 0 && c.After(period/d) == 0 {
			t.Fatalf("the label is back after %d steps already", period/d)
		}
	})
}

// outOfOrder takes steps until an order of labels contradicts the order of steps: until the label of a step does
// not come after the label of the step before. It returns the number of steps taken. Whatever the order is, that
// is no more than the period, because then a label comes again and would have to come after itself. (It returns
// 0 if less is no order, but says that every label comes after every other and itself.)
func outOfOrder(c *Counter, less func(x, y int64) bool) int64 {
	for n := int64(1); n <= Period(max(c.m, 1), c.a); n++ {
		before := c.label
		if !less(before, c.Step()) {
			return n
		}
	}
	return 0
}

func TestNoOrderOfLabelsAgreesWithTheOrderOfSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, a := Draw(t, 60)
		labels := make([]int64, m)
		for i := range labels {
			labels[i] = int64(i)
		}
		place := make([]int, m)
		for i, label := range rapid.Permutation(labels).Draw(t, "order") {
			place[label] = i
		}
		c, err := Reset(m, a)
		if err != nil {
			t.Fatal(err)
		}
		n := outOfOrder(c, func(x, y int64) bool { return place[x] < place[y] })
		if n < 1 || n > Period(m, a) {
			t.Fatalf("the order is contradicted after %d steps, the period is %d", n, Period(m, a))
		}
	})
	c, err := Reset(8, 1)
	require.NoError(t, err)
	require.EqualValues(t, 8, outOfOrder(c, func(x, y int64) bool { return x < y }), "7, and then 0")
	require.Zero(t, outOfOrder(c, func(int64, int64) bool { return true }), "this is no order")
	require.EqualValues(t, 1, outOfOrder(new(Counter), func(x, y int64) bool { return x < y }))
}

func TestDrawDrawsEverySettingOfASmallCounter(t *testing.T) {
	seen := map[[2]int64]bool{}
	draw := rapid.Custom(func(t *rapid.T) [2]int64 {
		m, a := Draw(t, 3)
		return [2]int64{m, a}
	})
	for seed := range 200 {
		seen[draw.Example(seed)] = true
	}
	want := map[[2]int64]bool{}
	for m := int64(1); m <= 3; m++ {
		for a := int64(0); a <= m; a++ {
			want[[2]int64{m, a}] = true
		}
	}
	require.Equal(t, want, seen)
}
