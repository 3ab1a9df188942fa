package lab

import (
	"net/http"
	"strconv"

	"modrev/helpers/wire"
)

// LoseAnswer loses the answer to the next request of a client with an HTTP method, which the server has then
// served: the client sees [wire.ErrAnswerLost].
func (l *Lab) LoseAnswer(who, verb string) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:  func(c *wire.Call) bool { return c.Who == who && c.Verb == verb },
		Times: 1, Lose: true,
	})
}

// GatewayAnswers has a gateway change the answer to the next request of a client, which the server has then
// served: its code, and its Retry-After, in seconds; 0 takes that out.
func (l *Lab) GatewayAnswers(who string, code, retryAfter int) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:  func(c *wire.Call) bool { return c.Who == who },
		Times: 1, Note: "a gateway's answer",
		Answer: func(resp *http.Response, body []byte) []byte {
			resp.StatusCode = code
			resp.Header.Del("Retry-After")
			if retryAfter > 0 {
				resp.Header.Set("Retry-After", strconv.Itoa(retryAfter))
			}
			return body
		},
	})
}
