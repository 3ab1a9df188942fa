package lesson

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/lab"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m, Book{
		{Title: "the order", Parts: []Part{{Title: "first", Lessons: "OR1"}}},
		{Title: "the sky", Parts: []Part{{Title: "its color", Lessons: "SK1"}}},
	}))
}

// exampleVariable is set in the environment of a test binary that is to hold the example lessons.
const exampleVariable = "MODREV_EXAMPLE_LESSONS"

// theSkyIsGreen is the false world of the examples.
var theSkyIsGreen = world.New("the sky is green", func(l *lab.Lab) { l.Wire.Tape().Remark("the sky was painted") })

// claim is what the examples claim.
func claim() Claim {
	return Claim{
		ID: "SK1", From: "D1 Expect 1",
		Says:    "the sky is blue, whoever looks at it and from wherever on the earth that person may look",
		Why:     "a page with a picture of the sky in it is printed in blue",
		FalseIf: theSkyIsGreen.Shows(`it is green`),
		Read:    source.Decl("example.org/sky", "(*Sky).Color"),
	}
}

// color is the color of the sky in the world of a lab.
func color(l *lab.Lab) string {
	if len(l.Wire.Tape().Lines(0)) > 0 {
		return "green"
	}
	return "blue"
}

// look is the lesson of the examples.
func look(l *lab.Lab) {
	l.Say("The sky is %s.", color(l))
	l.Expect(color(l) == "blue", "the sky is blue", "it is %s", color(l))
}

var rendezvous = make(chan struct{})

// examples are lessons, good and bad. They are held in a process of their own, because the bad ones fail.
var examples = map[string]func(*testing.T){
	"holds": func(t *testing.T) { Prove(t, claim(), look) },
	"erratum": func(t *testing.T) {
		c := claim()
		c.Erratum, c.AlsoFalseIf = "the document says that it is grey.", []world.World{theSkyIsGreen.Shows(`green$`)}
		Prove(t, c, look)
	},
	"broken": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) {
			l.Wire.Tape().Remark("writer: GET sky")
			l.Expect(false, "the sky is blue", "it is %s", "red")
		})
	},
	"stuck": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) { l.Step(errors.New("it is night"), "looking up") })
	},
	"proves nothing": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) { l.Expect(true, "the sky is there", "it is not") })
	},
	"stuck in the false world": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) {
			if color(l) == "green" {
				l.Step(errors.New("it is too bright"), "looking up")
			}
		})
	},
	"fails for another reason": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) { l.Expect(color(l) == "blue", "the sea is calm", "it is rough") })
	},
	"skipped in the false world": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) {
			if color(l) == "green" {
				l.Skip("nobody is there to look")
			}
		})
	},
	"skipped": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) { l.Skip("there is no sky here: go out and try again") })
	},
	"incomplete": func(t *testing.T) {
		Prove(t, Claim{ID: "sky", Says: "It is blue."}, func(*lab.Lab) { t.Error("an incomplete claim was taught") })
	},
	"looks": func(t *testing.T) {
		Look(t, func(l *lab.Lab) {
			l.Say("The sky is %s.", color(l))
			l.Wire.Tape().Remark("writer: GET sky")
		})
	},
	"looks amiss": func(t *testing.T) {
		Look(t, func(l *lab.Lab) { l.Equal("the color", color(l), "red") })
	},
	"no place": func(t *testing.T) {
		c := claim()
		c.ID = "SK9"
		Prove(t, c, look)
	},
	"waits": func(t *testing.T) {
		Prove(t, claim(), func(l *lab.Lab) {
			<-l.Context().Done()
			l.Stuck("waiting for the dawn", context.Cause(l.Context()))
		})
	},
	"meets/a": func(t *testing.T) { Prove(t, claim(), func(l *lab.Lab) { meet(l); look(l) }) },
	"meets/b": func(t *testing.T) { Prove(t, claim(), func(l *lab.Lab) { meet(l); look(l) }) },
}

// meet returns when two lessons are in it at the same time.
func meet(l *lab.Lab) {
	if color(l) == "green" {
		return
	}
	select {
	case rendezvous <- struct{}{}:
	case <-rendezvous:
	case <-time.After(10 * time.Second):
		l.Stuck("meeting the other lesson", errors.New("it does not come"))
	}
}

// TestExampleLessons holds the example lessons in the process that example starts, and nothing elsewhere.
func TestExampleLessons(t *testing.T) {
	if os.Getenv(exampleVariable) == "" {
		return
	}
	for name, lesson := range examples {
		t.Run(name, lesson)
	}
}

// example holds one example lesson, and returns what it prints and whether it passes.
func example(t *testing.T, name string, args ...string) (page []string, passes bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"-test.run=^TestExampleLessons$/^" + strings.ReplaceAll(name, " ", "_") + "$", "-test.v", "-test.count=1",
	}, args...)...)
	cmd.Env = append(os.Environ(), exampleVariable+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, "\n ")
		if text, ok := strings.CutPrefix(line, "    "); ok { // as go test prints what a test says
			page = append(page, text)
		} else {
			page = append(page, line)
		}
	}
	return page, err == nil
}

// between is what a page has after the line from and before the line to.
func between(t *testing.T, page []string, from, to string) []string {
	t.Helper()
	for i, line := range page {
		if !strings.HasPrefix(line, from) {
			continue
		}
		for j := i + 1; j < len(page); j++ {
			if strings.HasPrefix(page[j], to) {
				return page[i+1 : j]
			}
		}
	}
	require.Failf(t, "not on the page", "%q … %q in\n%s", from, to, strings.Join(page, "\n"))
	return nil
}

const (
	begins = "=== RUN   TestExampleLessons/"
	ends   = "--- "
)

func TestALessonHoldsAndFailsInTheFalseWorld(t *testing.T) {
	page, passes := example(t, "holds")
	assert.True(t, passes)
	assert.Equal(t, []string{
		"━━━ Chapter 2 · the sky ━━━",
		"",
		"── Its color ──",
		"",
		"SK1 · chapter 2, its color · D1 Expect 1",
		"",
		"The sky is blue, whoever looks at it and from wherever on the earth that person may look.",
		"Why it matters: a page with a picture of the sky in it is printed in blue.",
		"",
		"The sky is blue.",
		"",
		"In a world where the sky is green, the lesson fails:",
		"      EXPECTED  the sky is blue",
		"      OBSERVED  it is green",
		"      WIRE      the sky was painted",
		"",
		"Read: example.org/sky (*Sky).Color",
	}, between(t, page, begins, ends))

	page, passes = example(t, "erratum")
	assert.True(t, passes)
	text := strings.Join(page, "\n")
	assert.Contains(t, text, "\nErratum: the document says that it is grey.\n")
	assert.Equal(t, 2, strings.Count(text, "In a world where"), "the lesson fails in each of its worlds")
}

func TestABrokenLessonExplainsItself(t *testing.T) {
	page, passes := example(t, "broken")
	assert.False(t, passes)
	assert.Equal(t, []string{
		"CLAIM     SK1 the sky is blue, whoever looks at it and from wherever on the earth that person",
		"          may look",
		"EXPECTED  the sky is blue",
		"OBSERVED  it is red",
		"WIRE      writer: GET sky",
		"WHY       a page with a picture of the sky in it is printed in blue",
		"READ      example.org/sky (*Sky).Color",
	}, between(t, page, "The claim does not", ends)[1:])

	page, passes = example(t, "stuck")
	assert.False(t, passes)
	assert.Equal(t, []string{
		"A step on the way to the claim could not be done. That says nothing about the claim yet.",
		"CLAIM     SK1 the sky is blue, whoever looks at it and from wherever on the earth that person",
		"          may look",
		"EXPECTED  looking up succeeds",
		"OBSERVED  looking up: it is night",
		"WIRE      (nothing had been sent to etcd by then)",
		"WHY       a page with a picture of the sky in it is printed in blue",
		"READ      example.org/sky (*Sky).Color",
	}, between(t, page, "Why it matters", ends)[1:])
}

func TestALessonThatProvesNothingIsADefect(t *testing.T) {
	for name, defect := range map[string]string{
		"proves nothing": "nothing failed there: either the lesson does not notice when its claim is false, or " +
			"this world does not make it false.",
		"stuck in the false world": "a step failed there, before the claim could be put to the test.",
		"fails for another reason": "it failed there for another reason than the claim's own: OBSERVED does not match " +
			"\"it is green\".",
		"skipped in the false world": "it was skipped there (nobody is there to look).",
	} {
		page, passes := example(t, name)
		assert.False(t, passes, name)
		assert.Contains(t, strings.Join(strings.Fields(strings.Join(page, " ")), " "),
			"DEFECT This lesson proves nothing. In a world where the sky is green, it must fail; "+defect, name)
	}
}

func TestALessonWithoutACompleteClaimIsRefused(t *testing.T) {
	page, passes := example(t, "incomplete")
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"), "this claim is not complete, so there is no lesson: it needs "+
		`an ID of two capitals and a number (it has "sky"); `+
		`From, such as "D1 Expect 2, 3; D2 paragraph 1; +", where + is beyond the documents (it has ""); `+
		`Says, one sentence without a full stop; Why; Read, the upstream function to read; `+
		`FalseIf, the world in which it is false`)

	signless := claim()
	signless.FalseIf = theSkyIsGreen
	assert.ErrorContains(t, signless.check(), "Shows, the sign of failure in the world where the sky is green")
	crooked := claim()
	crooked.AlsoFalseIf = []world.World{theSkyIsGreen.Shows(`(`)}
	assert.ErrorContains(t, crooked.check(), "a sign that is a regular expression: error parsing regexp")
	for id, good := range map[string]bool{"RV1": true, "GU4b": true, "OT27": true, "RV": false, "rv1": false,
		"RV1bb": false, "RVX1": false} {
		c := claim()
		c.ID = id
		assert.Equal(t, good, c.check() == nil, id)
	}
}

func TestWhatWasSkippedIsCountedAtTheEnd(t *testing.T) {
	page, passes := example(t, "skipped")
	assert.True(t, passes)
	text := strings.Join(page, "\n")
	assert.Contains(t, text, "--- SKIP: TestExampleLessons/skipped")
	assert.Contains(t, text, "\n1 lesson skipped, for want of something that cannot be had here\nSK1   there is no sky "+
		"here: go out and try again")
}

func TestALessonThatWaitsTooLongSaysWhatForBeforeTheRunIsCutOff(t *testing.T) {
	page, passes := example(t, "waits", "-test.timeout=5300ms")
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"),
		"OBSERVED  waiting for the dawn: go test's -timeout, ")
}

func TestTogetherRunsAllLessonsAtOnce(t *testing.T) {
	page, passes := example(t, "meets", "-together", "-test.parallel=2")
	assert.True(t, passes, strings.Join(page, "\n"))
}

func TestBendTakesTheFalseWorldForReal(t *testing.T) {
	page, passes := example(t, "holds", "-bend")
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"), "OBSERVED  it is green")
}

func TestMachinesAreToldWhatIsClaimed(t *testing.T) {
	page, _ := example(t, "erratum", "-test.v=test2json")
	text := strings.Join(page, "\n")
	for _, attribute := range []string{
		"claim SK1", "from D1 Expect 1", "read example.org/sky (*Sky).Color", "erratum the document says that it is grey.",
	} {
		assert.Contains(t, text, "=== ATTR  TestExampleLessons/erratum "+attribute+"\n")
	}
	page, _ = example(t, "erratum")
	assert.NotContains(t, strings.Join(page, "\n"), "ATTR", "people are not told twice")
}

func TestTheTapeOfEachRunIsAnArtifact(t *testing.T) {
	dir := t.TempDir()
	_, passes := example(t, "holds", "-test.artifacts", "-test.outputdir="+dir)
	assert.True(t, passes)
	kept := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "tape") {
			return err
		}
		text, err := os.ReadFile(path)
		kept[d.Name()] = string(text)
		return err
	}))
	assert.Equal(t, map[string]string{
		"tape.txt":                  "As the world is.\n\n\n",
		"tape-the-sky-is-green.txt": "In a world where the sky is green.\n\nthe sky was painted\n",
	}, kept)
}

func TestALookPrintsWhatTheStepsShowedAndTheTape(t *testing.T) {
	page, passes := example(t, "looks$")
	assert.True(t, passes)
	assert.Equal(t, []string{"The sky is blue.", "", "writer: GET sky"}, between(t, page, begins, ends))
	page, passes = example(t, "looks amiss")
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"), "EXPECTED the color is red\n    OBSERVED the color is blue")
}

func TestAnIDThatIsNotInTheBookIsToldAtOnce(t *testing.T) {
	page, passes := example(t, "no place")
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"), "SK9 has no place in the book: add it to a part of the list")
	page, passes = example(t, "holds", "-test.run=CF77_")
	assert.False(t, passes)
	assert.Equal(t, "-run names CF77, and the book makes no claim of that id: CLAIMS.md lists those that it makes",
		page[0])
}
