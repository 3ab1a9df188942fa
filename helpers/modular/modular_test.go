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
