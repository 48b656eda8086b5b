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
		token, err = c.Token(r.Connection)
		if errors.Is(err, ErrInterrupted) {
			return resp, 0, "", err
		}
		if err != nil {
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
	if result.Cause = c.exchangeHandshake(req, r.Connection, &result); result.Cause == nil {
		return result, nil
	}
	if c.requests.Err() != nil {
		return result, ErrInterrupted
	}
	result.Err = ErrorText(result.Cause)
	if ctx.Err() != nil {
		result.Err = fmt.Sprintf("timed out after %s", timeout)
	}
	return result, nil
}

func (c *Client) exchangeHandshake(
	req *http.Request, by *endpointconf.Connection, result *endpointconf.HandshakeResponse,
) error {
	resp, err := c.transports.roundTrip(req, by)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	result.Status = resp.StatusCode
	result.AllowedOrigin = resp.Header.Values("WebHook-Allowed-Origin")
	result.AllowedRate = resp.Header.Values("WebHook-Allowed-Rate")
	result.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if req.Method == http.MethodOptions {
		return nil // only the headers count
	}
	return err
}
