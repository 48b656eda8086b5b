package endpoint

import (
	"errors"
	"net/http"
	"time"

	"postrider/policy"
)

// Request is a POST to an endpoint.
type Request struct {
	URL        string
	Header     http.Header
	Body       *Payload
	Connection *policy.Connection
	AckTimeout time.Duration
	// window is how long after the request a late response still counts; up to the ack timeout there is none.
	Window time.Duration
}

// Send sends a request, with an access token if the connection has OAuth2. late is the call if it stays open past the
// ack timeout: wait for it with Finish. The error is ErrInterrupted or nil; an endpoint's failure is an answer.
func (c *Client) Send(r *Request) (met Answer, late *Call, err error) {
	if r.Header["User-Agent"] == nil { // a custom header may set another
		r.Header.Set("User-Agent", c.userAgent)
	}
	if r.Connection.OAuth2 == nil {
		return c.sendOnce(r, "")
	}
	return c.sendAuthorized(r)
}

func (c *Client) sendOnce(r *Request, token string) (met Answer, late *Call, err error) {
	header := r.Header
	if token != "" {
		header = header.Clone()
		header.Set("Authorization", "Bearer "+token)
	}
	k := newCall(r.URL, header, r.Body)
	k.by = r.Connection
	if r.Window > r.AckTimeout {
		met, late, err = c.postOpen(k, r.AckTimeout, r.Window)
	} else {
		met, err = c.post(k, r.AckTimeout)
	}
	met.Sent, met.Token = header, token
	return met, late, err
}

// sendAuthorized sends a second request if the endpoint rejects a token that is not new: the token may have been
// revoked, and a policy may never retry 401. Both are one attempt, whose result is the second response.
func (c *Client) sendAuthorized(r *Request) (met Answer, late *Call, err error) {
	began := time.Now()
	token, problem := c.Token(r.Connection)
	switch {
	case errors.Is(problem, ErrInterrupted):
		return Answer{}, nil, problem
	case problem != nil:
		met = Answer{Result: policy.Result{Err: policy.ErrorUnauthorized}, Duration: time.Since(began)}
		met.Failed(problem)
		return met, nil, nil
	}
	again := r.Body.again() // kept until the response
	defer again.Drop()
	met, late, err = c.sendOnce(r, token)
	if err != nil || late != nil || met.Result.Status != http.StatusUnauthorized ||
		!c.tokens.refused(r.Connection, token) {
		return met, late, err
	}
	if token, err = c.Token(r.Connection); errors.Is(err, ErrInterrupted) {
		return met, nil, err
	} else if err != nil {
		return met, nil, nil //nolint:nilerr // the endpoint's 401 is the result
	}
	second := *r
	second.Body = again
	return c.sendOnce(&second, token)
}

// Finish waits for a call that stayed open, and then calls use unless the call was cut. cause cuts it at once. WaitLate
// waits for use.
func (c *Client) Finish(k *Call, cause error, use func(Answer)) {
	if cause != nil {
		k.cut(cause)
	}
	defer c.late.done(k)
	if r := <-k.met; r.err == nil && cause == nil {
		use(r.answer)
	}
}
