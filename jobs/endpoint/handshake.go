package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/policy"
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

// checkByHTTP makes the request by which a service shows that the entity exists, with each key until one is accepted.
func (c *Client) checkByHTTP(
	ctx context.Context, now time.Time, d *destination.Destination, by *endpointconf.Connection,
) (result destination.Result) {
	form, err := d.Form()
	if err != nil {
		return destination.Result{Result: policy.Result{Err: policy.ErrorArgument}, Text: err.Error(), Cause: err}
	}
	for _, second := range []bool{false, true} {
		address, h, ok := form.Check(now, second)
		if !ok {
			return result
		}
		result = c.checkOnce(ctx, form, address, h, by)
		if result.Status != http.StatusUnauthorized {
			return result
		}
	}
	return result
}

func (c *Client) checkOnce(
	ctx context.Context, form destination.Form, address string, h http.Header, by *endpointconf.Connection,
) destination.Result {
	failed := func(kind policy.ErrorKind, err error) destination.Result {
		return destination.Result{Result: policy.Result{Err: kind}, Text: ErrorText(err), Cause: OriginalError(err)}
	}
	if by.OAuth2 != nil {
		token, err := c.Token(by)
		if err != nil {
			return failed(policy.ErrorUnauthorized, err)
		}
		h.Set("Authorization", "Bearer "+token)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return failed(policy.ErrorArgument, err)
	}
	req.Header = h
	req.Header.Set("User-Agent", c.transports.UserAgent)
	resp, err := c.transports.roundTrip(req, by)
	if err != nil {
		return failed(errorKind(ctx, err), err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, MaxExcerptBytes)) // the status decides
	return form.Translate(resp.StatusCode, resp.Header, text)
}
