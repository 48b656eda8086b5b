package endpoint

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"postrider/internal/endpointconf"
)

const (
	// tokenTimeout is how long a token server may take. The attempt waits for it and then for the endpoint.
	tokenTimeout = 15 * time.Second
	// tokenPause is the pause between requests to a token server that fails, however many attempts need a token.
	tokenPause = time.Second
	// A token is renewed when a tenth of its lifetime is left, or a minute: it must not end during a request.
	tokenReserve = time.Minute
	// minTokenAge: if a token is newer, an endpoint's 401 has another cause.
	minTokenAge = 10 * time.Second
	// The lifetime if a server returns none (RFC 6749, 5.1: it should), and the longest.
	tokenLifetime    = 5 * time.Minute
	maxTokenLifetime = 24 * time.Hour
	// maxTokens bounds the memory: a token is 1 to 2 KB.
	maxTokens = 1024
)

// tokens are the access tokens of this node, by the credentials that they were requested with.
type tokens struct {
	requests   context.Context //nolint:containedctx // the lifetime of requests, cut by the engine's stop
	roundTrip  func(*http.Request, *endpointconf.Connection) (*http.Response, error)
	userAgent  string
	minAge     time.Duration
	requesting singleflight.Group

	mu   sync.Mutex
	held map[string]token
}

// token is the outcome of the last request with some credentials: a token, or an error.
type token struct {
	text    string
	failed  error
	got     time.Time
	renewAt time.Time // the outcome is used until then
	ends    time.Time // the token may be used until then if it cannot be renewed
}

func newTokens(
	requests context.Context, userAgent string,
	roundTrip func(*http.Request, *endpointconf.Connection) (*http.Response, error),
) *tokens {
	return &tokens{
		requests: requests, roundTrip: roundTrip, userAgent: userAgent, minAge: minTokenAge, held: map[string]token{},
	}
}

// Token returns an access token for a connection with OAuth2. The error is ErrInterrupted if the node's stop cut the
// request.
func (c *Client) Token(by *endpointconf.Connection) (string, error) {
	ctx, cancel := context.WithTimeout(c.requests, tokenTimeout+time.Second)
	defer cancel()
	token, err := c.tokens.get(ctx, by)
	if err != nil && c.requests.Err() != nil {
		return "", ErrInterrupted
	}
	return token, err
}

// get returns a token that is valid for a request. Callers that need the same one share one request. It continues if
// one of them is canceled.
func (s *tokens) get(ctx context.Context, by *endpointconf.Connection) (text string, err error) {
	key := credentialsOf(by)
	s.mu.Lock()
	t := s.held[key]
	s.mu.Unlock()
	if time.Now().Before(t.renewAt) {
		return t.text, t.failed
	}
	select {
	case r := <-s.requesting.DoChan(key, func() (any, error) { return s.renew(key, by) }):
		text, _ = r.Val.(string)
		return text, r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// rejected notes that an endpoint has responded to this token with 401. It reports whether to request another.
func (s *tokens) rejected(by *endpointconf.Connection, text string) bool {
	key := credentialsOf(by)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.held[key]
	if t.text != text {
		return t.text != "" // replaced meanwhile
	}
	if time.Since(t.got) < s.minAge {
		return false
	}
	delete(s.held, key)
	return true
}

func credentialsOf(by *endpointconf.Connection) string {
	text, _ := json.Marshal([]any{by.OAuth2, by.CertificateAuthorities, by.MinimumTLSVersion}) // strings: no error
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// renew requests a token and stores the outcome.
func (s *tokens) renew(key string, by *endpointconf.Connection) (text string, err error) {
	text, lifetime, err := s.request(by)
	s.mu.Lock()
	defer s.mu.Unlock()
	now, t := time.Now(), s.held[key]
	switch {
	case err == nil:
		t = token{text: text, got: now, ends: now.Add(lifetime)}
		t.renewAt = t.ends.Add(-min(lifetime/10, tokenReserve))
	case now.Before(t.ends):
		t.renewAt = now.Add(tokenPause)
	default:
		t = token{failed: err, renewAt: now.Add(tokenPause)}
	}
	if _, known := s.held[key]; !known && len(s.held) >= maxTokens {
		for other := range s.held { // any one: it is requested again
			delete(s.held, other)
			break
		}
	}
	s.held[key] = t
	return t.text, t.failed
}

// request requests a token with HTTP Basic credentials, which every server must accept (RFC 6749, 2.3.1). No error
// quotes the request or the response.
func (s *tokens) request(by *endpointconf.Connection) (text string, lifetime time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.requests, tokenTimeout)
	defer cancel()
	// The token server is not the endpoint's: it gets no client certificate.
	trusted := &endpointconf.Connection{
		MinimumTLSVersion: by.MinimumTLSVersion, CertificateAuthorities: by.CertificateAuthorities,
	}
	client := &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Accept", "application/json")
			r.Header.Set("User-Agent", s.userAgent)
			resp, err := s.roundTrip(r, trusted)
			if err == nil {
				resp.Header.Set("Content-Type", "application/json") // some servers send another type, or none
			}
			return resp, err
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	config := &clientcredentials.Config{
		ClientID: by.OAuth2.ClientID, ClientSecret: by.OAuth2.ClientSecret, TokenURL: by.OAuth2.TokenURL,
		Scopes: strings.Fields(by.OAuth2.Scope), AuthStyle: oauth2.AuthStyleInHeader,
	}
	got, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil && ctx.Err() != nil { // also while the response was read
		return "", 0, noToken(by, ctx.Err())
	}
	if err != nil {
		return "", 0, noToken(by, err)
	}
	unsafe := func(r rune) bool { return r <= ' ' || r > '~' }
	if !strings.EqualFold(got.Type(), "bearer") {
		return "", 0, fmt.Errorf("no token from %s: its response has a token_type that is not Bearer", by.OAuth2.TokenURL)
	}
	if strings.ContainsFunc(got.AccessToken, unsafe) {
		return "", 0, fmt.Errorf("no token from %s: its response has no access_token that a header can carry",
			by.OAuth2.TokenURL)
	}
	if got.Expiry.IsZero() {
		return got.AccessToken, tokenLifetime, nil
	}
	return got.AccessToken, min(max(time.Until(got.Expiry), 0), maxTokenLifetime), nil
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// noToken is the error of a request that failed. It quotes only the status and the error code (RFC 6749, 5.2) of a
// response.
func noToken(by *endpointconf.Connection, err error) error {
	var rejected *oauth2.RetrieveError
	var request *url.Error
	text := "its response is no JSON object with an access_token"
	switch {
	case errors.As(err, &rejected):
		text = fmt.Sprintf("it responded with %d", rejected.Response.StatusCode)
		if code := rejected.ErrorCode; code != "" && len(code) <= 64 &&
			strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
			text += " " + code
		}
		err = errors.New(text)
	case errors.As(err, &request), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		text = ErrorText(err)
	default: // it may quote the response
		err = errors.New(text)
	}
	return &PlainError{Text: "no token from " + by.OAuth2.TokenURL + ": " + text, Cause: err}
}
