package endpoint

import (
	"bytes"
	"context"
	"errors"
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

// Ask sends one request of a handshake, with an access token if the connection has OAuth2: an endpoint that accepts
// only authorized deliveries accepts only authorized handshakes. The token is returned because it must not be stored.
// Ask guards addresses and follows no redirect, as Send does. The error is ErrInterrupted or nil.
func (c *Client) Ask(
	a HandshakeRequest, timeout time.Duration,
) (met policy.HandshakeResponse, took time.Duration, token string, err error) {
	began := time.Now()
	if a.Connection.OAuth2 != nil {
		if token, err = c.Token(a.Connection); errors.Is(err, ErrInterrupted) {
			return met, 0, "", err
		} else if err != nil {
			met.Err, met.Cause = ErrorText(err), OriginalError(err)
			return met, time.Since(began), "", nil
		}
		a.Header.Set("Authorization", "Bearer "+token)
		began = time.Now()
	}
	met, err = c.ask(a, timeout)
	return met, time.Since(began), token, err
}

func (c *Client) ask(a HandshakeRequest, timeout time.Duration) (met policy.HandshakeResponse, err error) {
	ctx, cancel := context.WithTimeout(c.requests, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.Method, a.URL, bytes.NewReader(a.Body))
	if err != nil {
		return policy.HandshakeResponse{Err: ErrorText(err), Cause: err}, nil
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
		return met, ErrInterrupted
	case ctx.Err() != nil:
		met.Err = fmt.Sprintf("timed out after %s", timeout)
	default:
		met.Err = ErrorText(err)
	}
	return met, nil
}
