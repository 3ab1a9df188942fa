package wire

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const shelfPath = "/api/v1/namespaces/rv1-1/configmaps/shelf"

// server is an API server that answers what it is told to, and remembers what it was asked.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	code   int
	answer string
}

func newServer(t *testing.T, code int, answer string) *server {
	s := &server{code: code, answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // what did not arrive is seen as missing
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		w.WriteHeader(s.code)
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

// do sends a request of the client "writer" through the tap, and returns the body of the answer.
func (s *server) do(t *testing.T, tap *Tap, method, path, contentType, body string) (string, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	q.Header.Set("Content-Type", contentType)
	resp, err := tap.Transport("writer")(http.DefaultTransport).RoundTrip(q)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.EqualValues(t, len(answer), resp.ContentLength)
	return string(answer), resp.Body.Close()
}

func TestAnHTTPRequestIsPrintedAsAPersonReadsIt(t *testing.T) {
	const (
		object   = `{"metadata":{"resourceVersion":"217"}}`
		conflict = `{"kind":"Status","metadata":{},"reason":"Conflict","message":"stale"}`
	)
	for _, c := range []struct {
		method, path, contentType, body string
		code                            int
		answer                          string
		request, outcome                string
	}{
		{"PUT", shelfPath, "application/json", `{"metadata":{"resourceVersion":"216"}}`, 200, object,
			"writer: PUT configmaps/shelf, resourceVersion 216", "writer: ← 200 OK, resourceVersion 217"},
		{"PUT", shelfPath, "application/json", `{"metadata":{"resourceversion":"216"}}`, 200, object,
			"writer: PUT configmaps/shelf (no resourceVersion)", "writer: ← 200 OK, resourceVersion 217"},
		{"PUT", shelfPath + "/status", "application/json", `{"metadata":{}}`, 409, conflict,
			"writer: PUT configmaps/shelf/status (no resourceVersion)", "writer: ← 409 Conflict"},
		{"PATCH", shelfPath, "application/merge-patch+json", `{"data":{}}`, 200, object,
			"writer: PATCH configmaps/shelf, merge patch (no resourceVersion)", "writer: ← 200 OK, resourceVersion 217"},
		{"PATCH", shelfPath + "?fieldManager=writer&force=true", "application/apply-patch+yaml", `{}`, 201, object,
			"writer: PATCH configmaps/shelf, apply, ?force=true", "writer: ← 201 Created, resourceVersion 217"},
		{"PATCH", shelfPath, "application/json-patch+json", `[]`, 200, object,
			"writer: PATCH configmaps/shelf, JSON patch", "writer: ← 200 OK, resourceVersion 217"},
		{"PATCH", shelfPath, "application/strategic-merge-patch+json", `{}`, 415, `nonsense`,
			"writer: PATCH configmaps/shelf, strategic merge patch", "writer: ← 415 Unsupported Media Type"},
		{"GET", "/apis/rv1-1.modrev.example/v1/namespaces/rv1-1/shelves?limit=1&continue=" + strings.Repeat("x", 40), "", "",
			200, object,
			"writer: GET shelves, ?limit=1, ?continue=" + strings.Repeat("x", 20) + "…",
			"writer: ← 200 OK, resourceVersion 217"},
		{"GET", "/api/v1/nodes/n", "", "", 200, `{}`, "writer: GET nodes/n", "writer: ← 200 OK"},
		{"GET", "/version", "", "", 200, `{}`, "writer: GET version", "writer: ← 200 OK"},
	} {
		s := newServer(t, c.code, c.answer)
		tap := (&Wire{}).Tap("rv1-1")
		got, err := s.do(t, tap, c.method, c.path, c.contentType, c.body)
		require.NoError(t, err)
		assert.Equal(t, c.answer, got)
		assert.Equal(t, []string{c.body}, s.bodies)
		assert.Equal(t, []string{c.request, c.outcome}, tap.Tape().Lines(0))
	}
}

func TestAnHTTPRuleAltersWhatIsSentAndWhatIsAnswered(t *testing.T) {
	s := newServer(t, 200, `{"metadata":{"resourceVersion":"217"}}`)
	tap := (&Wire{}).Tap("rv1-1")
	var ns []int
	tap.AddHTTP(&HTTPRule{
		When: func(c *Call) bool { return c.HasToken }, Note: "dropped", Times: 2, Do: func(n int) { ns = append(ns, n) },
		Request: func(*http.Request, []byte) []byte { return []byte(`{}`) },
		Answer:  func(*http.Response, []byte) []byte { return []byte(`{"metadata":{"resourceVersion":"218"}}`) },
	})
	for i := range 3 {
		got, err := s.do(t, tap, "PUT", shelfPath, "application/json", `{"metadata":{"resourceVersion":"216"}}`)
		require.NoError(t, err)
		assert.Equal(t, i < 2, strings.Contains(got, "218"))
	}
	assert.Equal(t, []int{1, 2}, ns)
	assert.Equal(t, []string{`{}`, `{}`, `{"metadata":{"resourceVersion":"216"}}`}, s.bodies)
	assert.Equal(t, "writer: PUT configmaps/shelf (no resourceVersion)  [dropped]", tap.Tape().Lines(0)[0])
	assert.Equal(t, "writer: ← 200 OK, resourceVersion 218", tap.Tape().Lines(0)[1])
}

func TestAnAnswerThatIsLostWasGivenAndARefusedRequestWasNeverSent(t *testing.T) {
	s := newServer(t, 200, `{}`)
	tap := (&Wire{}).Tap("rv1-1")
	no := errors.New("connection refused")
	tap.AddHTTP(&HTTPRule{Times: 1, Lose: true})
	_, err := s.do(t, tap, "PUT", shelfPath, "application/json", `{}`)
	require.ErrorIs(t, err, ErrAnswerLost)
	assert.Len(t, s.bodies, 1, "the server has answered")

	tap.AddHTTP(&HTTPRule{Times: 1, Refuse: no})
	_, err = s.do(t, tap, "PUT", shelfPath, "application/json", `{}`)
	require.ErrorIs(t, err, no)
	assert.Len(t, s.bodies, 1, "the server was not asked")
	assert.Equal(t, []string{
		"writer: PUT configmaps/shelf (no resourceVersion)",
		"writer: ← (200, but the answer was lost)",
		"writer: PUT configmaps/shelf (no resourceVersion)",
		"writer: ← no answer: connection refused",
	}, tap.Tape().Lines(0))
}

// roundTrip is a server that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// closing is a body that remembers whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (b *closing) Close() error {
	b.closed = true
	return nil
}

func TestABodyThatCannotBeReadIsClosedAndNotSent(t *testing.T) {
	no := errors.New("the disk is gone")
	body := &closing{Reader: iotest.ErrReader(no)}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://server"+shelfPath, body)
	require.NoError(t, err)
	_, err = (&Wire{}).Tap("rv1-1").Transport("writer")(roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("it was sent")
		return nil, no
	})).RoundTrip(q)
	require.ErrorIs(t, err, no)
	assert.True(t, body.closed)
}

func TestTheWatchesOfAClientAreHeldUntilAllWhoHoldThemLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, server := io.Pipe()
		send := func(event string) {
			t.Helper()
			_, err := io.WriteString(server, event+"\n")
			require.NoError(t, err)
		}
		tap := (&Wire{}).Tap("ot16-1")
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+shelfPath+"?watch=1", nil)
		require.NoError(t, err)
		resp, err := tap.Transport("reader")(roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		})).RoundTrip(q)
		require.NoError(t, err)
		defer resp.Body.Close()
		lines := make(chan string)
		go func() {
			defer close(lines)
			for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
				lines <- sc.Text()
			}
		}()
		send("one")
		assert.Equal(t, "one", <-lines)

		first := tap.HoldWatches("reader")
		send("two")
		synctest.Wait() // it waits for the first now
		second := tap.HoldWatches("reader")
		first.Release()
		synctest.Wait() // whatever can come through has come through
		select {
		case line := <-lines:
			t.Fatalf("%q came through while the watches were held", line)
		default:
		}
		second.Release()
		assert.Equal(t, "two", <-lines)

		tap.HoldWatches("somebody else")
		send("three")
		assert.Equal(t, "three", <-lines)

		tap.HoldWatches("reader")
		send("four")
		tap.Close()
		assert.Equal(t, "four", <-lines, "a tap that is closed holds nothing")
		tap.HoldWatches("reader")
		send("five")
		assert.Equal(t, "five", <-lines)
		require.NoError(t, resp.Body.Close())
		_, ok := <-lines
		assert.False(t, ok)
	})
}

func TestAWatchThatIsClosedWhileItIsHeldEnds(t *testing.T) {
	body := struct {
		io.Reader
		io.Closer
	}{strings.NewReader("event"), io.NopCloser(nil)}
	tap := (&Wire{}).Tap("ot16-1")
	g := newGated(tap, "reader", body)
	tap.HoldWatches("reader")
	ended := make(chan error)
	go func() { _, err := g.Read(make([]byte, 9)); ended <- err }()
	require.NoError(t, g.Close())
	require.ErrorIs(t, <-ended, errClosedWatch)
	require.NoError(t, g.Close())
}
