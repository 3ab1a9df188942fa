package lesson

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/token"
)

var replayFile = flag.String("replay", "", "play the trace of equality tokens in this `file` against the model and "+
	"the server")

// readTrace says before anything is run what is wrong with the trace that -replay names.
func readTrace() error {
	if *replayFile == "" {
		return nil
	}
	_, err := token.ReadFile(*replayFile)
	return err
}

// Replays plays the trace that -replay names, if it does, and says whether it did. The test fails where
// the server's answer is not the one that the trace expects, or not the model's.
func Replays(t *testing.T) bool {
	if *replayFile == "" || *claims {
		return false
	}
	trace, err := token.ReadFile(*replayFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := deadline(t)
	defer cancel()
	l := lab.New(ctx, lab.Shared(), "replay")
	defer l.Close()
	done := make(chan struct{})
	var problems []error
	go func() {
		defer close(done)
		problems = replay(t, l, trace)
	}()
	<-done
	if f := l.Told().Failure; f != nil {
		t.Fatal(f.Observed)
	}
	for _, err := range problems {
		t.Error(err)
	}
	return true
}

func replay(t *testing.T, l *lab.Lab, trace token.Trace) []error {
	var problems []error
	model := &token.Model{Kind: trace.Kind}
	expected, err := token.Replay(l.Context(), model, trace)
	if err != nil {
		problems = append(problems, fmt.Errorf("playing the trace against the model: %w", err))
	}
	observed, err := token.Replay(l.Context(), l.Register(trace.Kind), trace)
	if err != nil {
		problems = append(problems, fmt.Errorf("playing the trace against the server: %w", err))
	}
	for i, step := range trace.Steps {
		if i >= len(observed) {
			break
		}
		request, _, _ := strings.Cut(step.String(), "->")
		fmt.Fprintf(t.Output(), "%-50s -> %s\n", strings.TrimSpace(request), observed[i])
	}
	if err := trace.Check(observed); err != nil {
		problems = append(problems, fmt.Errorf("the server does not answer as the trace says: %w", err))
	}
	if err := token.Agree(trace, expected, observed); err != nil {
		problems = append(problems, fmt.Errorf("the server does not answer as the model does: %w", err))
	}
	return problems
}
