package endpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/policy"
)

// HandshakeRequest is one request of a handshake.
type HandshakeRequest struct {
	Method, URL string
	Header      http.Header
	Body        []byte
	Summary     string // for the handshake's history
	Connection  *policy.Connection
}

// Ask sends one request of a handshake. It guards addresses and follows no redirect, as Send does. The error is
// ErrInterrupted or nil.
func (c *Client) Ask(
	a HandshakeRequest, timeout time.Duration,
) (met policy.HandshakeAnswer, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(c.requests, timeout)
	defer cancel()
	k := newCall(a.URL, a.Header, nil)
	req, err := http.NewRequestWithContext(ctx, a.Method, a.URL, bytes.NewReader(a.Body))
	if err != nil {
		return policy.HandshakeAnswer{Err: ErrorText(err), Cause: err}, 0, nil
	}
	req.Header = a.Header
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	resp, err := c.transports.roundTrip(req, a.Connection)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		met.Status, met.AllowedOrigin, met.AllowedRate = resp.StatusCode, resp.Header.Values("WebHook-Allowed-Origin"),
			resp.Header.Values("WebHook-Allowed-Rate")
		met.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
		if a.Method == http.MethodOptions {
			err = nil // its headers are the answer
		}
	}
	met.Cause = err
	switch {
	case err == nil:
	case c.requests.Err() != nil:
		return met, k.elapsed(), ErrInterrupted
	case ctx.Err() != nil:
		met.Err = fmt.Sprintf("timed out after %s", timeout)
	default:
		met.Err = ErrorText(err)
	}
	return met, k.elapsed(), nil
}
