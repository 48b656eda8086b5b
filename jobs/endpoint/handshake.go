package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/internal/endpointconf"
)

// HandshakeRequest is one request of a handshake.
type HandshakeRequest struct {
	Method, URL string
	Header      http.Header
	Body        []byte
	Summary     string // for the handshake's history
	Connection  *endpointconf.Connection
}

// SendHandshake sends one request of a handshake, with an access token if the connection has OAuth2: an endpoint that
// accepts only authorized deliveries accepts only authorized handshakes. The token is returned because it must not be
// stored. The error is ErrInterrupted or nil.
func (c *Client) SendHandshake(
	r *HandshakeRequest, timeout time.Duration,
) (resp endpointconf.HandshakeResponse, took time.Duration, token string, err error) {
	began := time.Now()
	if r.Connection.OAuth2 != nil {
		if token, err = c.Token(r.Connection); errors.Is(err, ErrInterrupted) {
			return resp, 0, "", err
		} else if err != nil {
			resp.Err, resp.Cause = ErrorText(err), OriginalError(err)
			return resp, time.Since(began), "", nil
		}
		r.Header.Set("Authorization", "Bearer "+token)
		began = time.Now()
	}
	resp, err = c.handshake(r, timeout)
	return resp, time.Since(began), token, err
}

func (c *Client) handshake(r *HandshakeRequest, timeout time.Duration) (endpointconf.HandshakeResponse, error) {
	ctx, cancel := context.WithTimeout(c.requests, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return endpointconf.HandshakeResponse{Err: ErrorText(err), Cause: err}, nil
	}
	req.Header = r.Header
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.transports.UserAgent)
	}
	var result endpointconf.HandshakeResponse
	resp, err := c.transports.roundTrip(req, r.Connection)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		result.Status = resp.StatusCode
		result.AllowedOrigin = resp.Header.Values("WebHook-Allowed-Origin")
		result.AllowedRate = resp.Header.Values("WebHook-Allowed-Rate")
		result.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
		if r.Method == http.MethodOptions {
			err = nil // only the headers count
		}
	}
	result.Cause = err
	switch {
	case err == nil:
	case c.requests.Err() != nil:
		return result, ErrInterrupted
	case ctx.Err() != nil:
		result.Err = fmt.Sprintf("timed out after %s", timeout)
	default:
		result.Err = ErrorText(err)
	}
	return result, nil
}
