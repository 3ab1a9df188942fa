package falsify

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAPropertyThatHoldsHasNoCounterexample(t *testing.T) {
	require.NoError(t, Property("holds", func(t *rapid.T) error {
		rapid.Int().Draw(t, "n")
		return nil
	}))
}

func TestTheCounterexampleIsTheSmallest(t *testing.T) {
	wrong := errors.New("too big")
	err := Property("fails", func(t *rapid.T) error {
		n := rapid.IntRange(0, 1000).Draw(t, "n")
		t.Logf("n is %d", n)
		if n > 12 {
			return fmt.Errorf("looking at %d: %w", n, wrong)
		}
		return nil
	})
	var c *Counterexample
	require.ErrorAs(t, err, &c)
	require.ErrorIs(t, err, wrong)
	require.Equal(t, []string{"n: 13", "n is 13"}, c.Case)
	require.EqualError(t, err, "n: 13\nn is 13\nlooking at 13: too big")
	require.Contains(t, c.Report, "-rapid.seed=")
}

func TestAPanicOrAFailureByRapidIsACounterexampleToo(t *testing.T) {
	for name, property := range map[string]func(*rapid.T) error{
		"boom":  func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); panic("boom") },
		"fatal": func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); t.Fatal("fatal"); return nil },
		"error": func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); t.Error("error"); return nil },
	} {
		err := Property(name, property)
		var c *Counterexample
		require.ErrorAs(t, err, &c)
		require.Contains(t, c.Case, "b: false")
		require.ErrorContains(t, err, name)
	}
}

func TestNoFileIsLeftBehind(t *testing.T) {
	t.Chdir(t.TempDir())
	require.Error(t, Property("fails", func(t *rapid.T) error {
		rapid.Bool().Draw(t, "b")
		return errors.New("always")
	}))
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries)
}
