package lab

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"modrev/helpers/modular"
	"modrev/helpers/token"
)

func TestAPropertyThatHoldsIsNotFalsified(t *testing.T) {
	require.NoError(t, falsify("holds", func(t *rapid.T) error {
		rapid.Int().Draw(t, "n")
		return nil
	}))
}

// The belief that the labels of any counter repeat after m steps and not before.
func TestTheSmallestCaseIsTheOneThatIsTold(t *testing.T) {
	t.Chdir(t.TempDir())
	err := falsify("labels", func(t *rapid.T) error {
		m, a := modular.Draw(t, 1000)
		if period := modular.Period(m, a); period != m {
			return fmt.Errorf("m=%d a=%d: the labels repeat after %d steps", m, a, period)
		}
		return nil
	})
	require.EqualError(t, err, "m=2 a=2: the labels repeat after 1 steps")
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left, "no file keeps the case")
}

func TestATraceThatShowsAWrapIsShrunkToItsWrites(t *testing.T) {
	err := falsify("wrap", func(t *rapid.T) error {
		s, err := modular.NewStore(token.ConfigMap, 2, 1)
		if err != nil {
			return err
		}
		return token.Compare(t.Context(), token.Draw(t, token.ConfigMap, 1, 60), &token.Model{}, s)
	})
	var d *token.Disagreement
	require.ErrorAs(t, err, &d)
	// Three writes are needed, and the shrinking cannot turn a delete and a create into a replace.
	require.LessOrEqual(t, d.Step, 4, "%v", err)
	require.Equal(t, "the token that step 1 brought", d.Observed)
}

func TestAPanicOrAFailureByRapidFalsifiesToo(t *testing.T) {
	for name, property := range map[string]func(*rapid.T) error{
		"boom":  func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); panic("boom") },
		"fatal": func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); t.Fatal("fatal"); return nil },
		"error": func(t *rapid.T) error { rapid.Bool().Draw(t, "b"); t.Error("error"); return nil },
	} {
		err := falsify("property", property)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "-rapid.seed=")
	}
}
