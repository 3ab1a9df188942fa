package lesson

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// go test takes files in alphabetical order, in which this one is the last.
func TestOR1_TheBookIsReadInTheOrderOfItsList(t *testing.T) {
	tests, err := list(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "TestOR1_TheBookIsReadInTheOrderOfItsList", tests[0])
}
