package jobs

import (
	"net/http"
	"time"

	"postrider/jobs/endpoint"
	"postrider/policy"
)

// send sends the attempt's request.
func (a *attempt) send(header http.Header, body *endpoint.Payload) (met endpoint.Answer, late *endpoint.Call, err error) {
	met, late, err = a.engine.endpoint.Send(&endpoint.Request{
		URL: a.sub.EndpointURL, Header: header, Body: body, Connection: &a.sub.Connection,
		AckTimeout: a.policy.AckTimeout, Window: a.policy.LateAnswerWindow,
	})
	a.token, a.posted = met.Token, met.Sent
	return met, late, err
}

// askAuthorized makes a request of a handshake, with a token where the event subscription asks for one: who answers deliveries only
// to those it knows answers handshakes no other way. The token is returned to be kept out of what is stored.
func (e *Engine) askAuthorized(q endpoint.HandshakeRequest) (met policy.HandshakeAnswer, took time.Duration, token string, err error) {
	if q.Connection.OAuth2 != nil {
		began := time.Now()
		if token, err = e.endpoint.Token(q.Connection); err != nil {
			if e.endpoint.Stopped() {
				return met, 0, "", endpoint.ErrInterrupted
			}
			return policy.HandshakeAnswer{Err: endpoint.ErrorText(err), Cause: endpoint.OriginalError(err)}, time.Since(began), "", nil
		}
		q.Header.Set("Authorization", "Bearer "+token)
	}
	met, took, err = e.endpoint.Ask(q, e.options.HandshakeTimeout)
	return met, took, token, err
}
