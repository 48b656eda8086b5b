package endpoint

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"time"

	"postrider/policy"
)

// post sends one request and waits for its answer, at most until the ack timeout. The error is errInterrupted or nil:
// an endpoint's failure is an outcome.
func (c *Client) post(k *Call, ackTimeout time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(c.requests, ackTimeout)
	defer cancel()
	a, err := c.exchange(ctx, k)
	if ctx.Err() != nil {
		a.timedOut(ackTimeout)
	}
	return a, err
}

// exchange makes the call until ctx ends it.
func (c *Client) exchange(ctx context.Context, k *Call) (Answer, error) {
	a := Answer{}
	trace := k.watch.trace()
	trace.WroteRequest = c.wrote(k.body)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, k.url, nil)
	if err != nil {
		a.Result, a.Duration = policy.Result{Err: policy.ErrorArgument}, k.elapsed()
		a.Failed(err)
		return a, nil
	}
	k.body.attach(req)
	req.Header = k.header
	if req.Header["User-Agent"] == nil { // a custom header may name another one
		req.Header.Set("User-Agent", c.userAgent)
	}
	resp, err := c.transports.roundTrip(req, k.by)
	a.Timings, a.Duration = k.watch.read(), k.elapsed() // in this order: no phase is longer than the whole
	if err != nil {
		if c.requests.Err() != nil {
			return a, ErrInterrupted
		}
		a.Result = policy.Result{Err: errorKind(ctx, err)}
		a.Failed(err)
		return a, nil
	}
	defer func() { _ = resp.Body.Close() }()
	defer k.answered()()
	a.read(resp)
	a.Duration = k.elapsed()
	return a, nil
}

func (c *Client) wrote(body *Payload) func(httptrace.WroteRequestInfo) {
	if c.sent == nil {
		return body.wrote
	}
	return func(info httptrace.WroteRequestInfo) {
		body.wrote(info)
		c.sent()
	}
}

// postOpen is post under a policy that takes late answers: at the ack timeout the attempt has timed out, and the call
// stays open until the window, counted from the send, is over. Then late is that call, and has to be given to follow.
func (c *Client) postOpen(k *Call, ackTimeout, window time.Duration) (met Answer, late *Call, err error) {
	ctx, cut := context.WithCancelCause(c.requests)
	k.cut, k.met = cut, make(chan reply, 1)
	go func() {
		defer cut(nil)
		met, err := c.exchange(ctx, k)
		k.met <- reply{met, err}
	}()
	ack := time.NewTimer(ackTimeout)
	defer ack.Stop()
	select {
	case r := <-k.met:
		return r.answer, nil, r.err
	case <-ack.C:
	}
	if c.late.keep(k, window-ackTimeout) {
		met = Answer{Result: policy.Result{Err: policy.ErrorTimeout}, Timings: k.watch.read(), Duration: k.elapsed()}
		met.Cause = context.DeadlineExceeded
		met.timedOut(ackTimeout)
		return met, k, nil
	}
	cut(context.DeadlineExceeded) // no answer yet, or one whose body goes on
	r := <-k.met
	r.answer.timedOut(ackTimeout)
	return r.answer, nil, r.err
}
