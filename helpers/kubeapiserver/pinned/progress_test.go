package pinned

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThereIsALineAtLeastEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		last := time.Now()
		heartbeat(ctx, func() {
			assert.LessOrEqual(t, time.Since(last), 10*time.Second)
			last = time.Now()
		})
		assert.LessOrEqual(t, time.Since(last), 10*time.Second)
	})
}

func TestTheMeterSaysWhatTheGoCommandDoes(t *testing.T) {
	var out bytes.Buffer
	m := &meter{out: &out, start: time.Now()}
	is := func(want string) {
		t.Helper()
		assert.Equal(t, want, m.now())
	}
	goSays := func(text string) {
		t.Helper()
		n, err := m.Write([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, len(text), n)
	}
	is("finding out what there is to compile")
	goSays("go: downloading k8s.io/kubernetes v1.37.2\n")
	is("downloading module 1: k8s.io/kubernetes v1.37.2")
	goSays("go: downloading k8s.io/api v0.37.2\ngo: downl")
	is("downloading module 2: k8s.io/api v0.37.2")
	goSays("oading k8s.io/klog v2.140.0\n")
	is("downloading module 3: k8s.io/klog v2.140.0")
	m.since = m.since.Add(-2 * slow)
	is("downloading module 3: k8s.io/klog v2.140.0 (for 2:00; does GOPROXY answer?)")

	m.plan(map[string]bool{"a": true, "a/b": true, "c": true, "main": true}, "main", 3)
	is("starting to compile")
	goSays("a\n")
	is("compiling package 1 of 3: a")
	goSays("a/b\n# a/b\na/b/x.go:1:2: trouble\n")
	is("compiling package 2 of 3: a/b")
	assert.Empty(t, out.String())
	goSays("main\n")
	is("linking")
	assert.Equal(t, "   0:00  linking\n", out.String())
	goSays("unfinished")
	assert.Equal(t, []string{"# a/b", "a/b/x.go:1:2: trouble", "unfinished"}, m.output())

	goSays(strings.Repeat("x\n", 10*tailLines))
	assert.Len(t, m.output(), tailLines)
}

func TestWithNothingToCompileOnlyLinkingIsLeft(t *testing.T) {
	m := &meter{}
	m.plan(map[string]bool{"a": true, "main": true}, "main", 1)
	assert.Equal(t, "linking", m.now())
}

func TestALineIsNoWiderThanThePage(t *testing.T) {
	var out bytes.Buffer
	m := &meter{out: &out, start: time.Now()}
	pkg := "k8s.io/" + strings.Repeat("long/", 40) + "end"
	m.say("compiling package 1 of 2: %s", pkg)
	line := strings.TrimSuffix(out.String(), "\n")
	assert.Len(t, []rune(line), width)
	assert.True(t, strings.HasPrefix(line, "   0:00  compiling package 1 of 2: k8s.io/"), line)
	assert.True(t, strings.HasSuffix(line, "/end"), line)
	assert.Equal(t, "short", fit("short", width))
}

func TestDurationsAreNamedRoughly(t *testing.T) {
	assert.Equal(t, "some seconds", roughly(9*time.Second))
	assert.Equal(t, "about a minute", roughly(70*time.Second))
	assert.Equal(t, "about 5 minutes", roughly(270*time.Second))
	assert.Equal(t, "4:35", clock(275*time.Second))
}
