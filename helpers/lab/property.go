package lab

import (
	"errors"

	"pgregory.net/rapid"

	"modrev/helpers/falsify"
)

// Property puts a property to the test with values that rapid draws. check returns nil when it holds, and
// otherwise why it does not; what it says of the smallest such case is what the reader sees. check runs
// outside of the lesson's goroutine, so it uses methods that begin with Try.
func (l *Lab) Property(expected string, check func(*rapid.T) error) {
	err := falsify.Property(l.Namespace, check)
	var found *falsify.Counterexample
	if errors.As(err, &found) {
		err = found.Err
	}
	l.Expect(err == nil, expected, "%v", err)
}
