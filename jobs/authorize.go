package jobs

import (
	"context"
	"net/http"
	"time"

	"postrider/policy"
)

// send makes the attempt's request, with a token where the event subscription asks for one.
func (a *attempt) send(header http.Header, sent *payload) (met answer, late *call, err error) {
	if a.sub.Connection.OAuth2 == nil {
		return a.call(header, sent)
	}
	return a.sendAuthorized(header, sent)
}

func (a *attempt) call(header http.Header, sent *payload) (met answer, late *call, err error) {
	if header["User-Agent"] == nil { // a custom header may name another one
		header.Set("User-Agent", a.engine.endpoint.userAgent)
	}
	a.posted = header
	k := newCall(a.sub.EndpointURL, header, sent)
	k.by = &a.sub.Connection
	if a.policy.LateAnswerWindow > a.policy.AckTimeout {
		return a.engine.endpoint.postOpen(k, a.policy.AckTimeout, a.policy.LateAnswerWindow)
	}
	met, err = a.engine.endpoint.post(k, a.policy.AckTimeout)
	return met, nil, err
}

// sendAuthorized makes a second request where the endpoint has refused a token that was not new: it may have been withdrawn, and a
// policy may never retry 401. That is one attempt: its answer is the second request's.
func (a *attempt) sendAuthorized(header http.Header, sent *payload) (met answer, late *call, err error) {
	first, failed, err := a.authorize(header)
	if failed != nil || err != nil {
		return *failed, nil, err
	}
	again := sent.again() // kept until the answer, but by no endpoint that hangs: the gate soon lets one call through to that
	defer again.drop()
	met, late, err = a.call(header.Clone(), sent)
	if err != nil || late != nil || met.result.Status != http.StatusUnauthorized || !a.engine.endpoint.tokens.refused(&a.sub.Connection, first) {
		return met, late, err
	}
	if _, failed, err := a.authorize(header); failed != nil || err != nil {
		return met, nil, err
	}
	return a.call(header, again)
}

// authorize gets a token and puts it into the header. failed is what the attempt comes to without one: the outcome Unauthorized. The
// error is errInterrupted.
func (a *attempt) authorize(header http.Header) (text string, failed *answer, err error) {
	began := time.Now()
	text, problem := a.engine.endpoint.token(&a.sub.Connection)
	switch {
	case problem == nil:
		header.Set("Authorization", "Bearer "+text)
		a.token = text
		return text, nil, nil
	case a.engine.endpoint.requests.Err() != nil:
		return "", &answer{}, errInterrupted
	}
	met := answer{result: policy.Result{Err: policy.ErrorUnauthorized}, duration: time.Since(began)}
	met.failed(problem)
	return "", &met, nil
}

// token waits for an access token as long as a token server may take.
func (c *endpointClient) token(by *policy.Connection) (string, error) {
	ctx, cancel := context.WithTimeout(c.requests, tokenTimeout+time.Second)
	defer cancel()
	return c.tokens.get(ctx, by)
}

// askAuthorized makes a request of a handshake, with a token where the event subscription asks for one: who answers deliveries only
// to those it knows answers handshakes no other way. The token is returned to be kept out of what is stored.
func (e *Engine) askAuthorized(q question) (met policy.HandshakeAnswer, took time.Duration, token string, err error) {
	if q.by.OAuth2 != nil {
		began := time.Now()
		if token, err = e.endpoint.token(q.by); err != nil {
			if e.endpoint.requests.Err() != nil {
				return met, 0, "", errInterrupted
			}
			return policy.HandshakeAnswer{Err: errorText(err), Cause: originalError(err)}, time.Since(began), "", nil
		}
		q.header.Set("Authorization", "Bearer "+token)
	}
	met, took, err = e.endpoint.ask(q, e.options.HandshakeTimeout)
	return met, took, token, err
}
