package endpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"postrider/policy"
)

const (
	// tokenTimeout is how long a token server may take: an endpoint's own ack timeout is 30 s at least, and the attempt
	// waits for both.
	tokenTimeout = 15 * time.Second
	// tokenPause keeps a thousand attempts from asking a token server that fails a thousand times a second.
	tokenPause = time.Second
	// A token is renewed when a tenth of its life is left, a minute at most: a request under way must not outlive it.
	tokenReserve = time.Minute
	// minTokenAge: a token that was got just now is not why an endpoint answers 401.
	minTokenAge = 10 * time.Second
	// Of servers that do not say how long a token lives (RFC 6749, 5.1: they should), and of those that say for ever.
	tokenLifetime    = 5 * time.Minute
	maxTokenLifetime = 24 * time.Hour
	maxTokenBytes    = 64 << 10
	// maxTokens bounds the memory: a token is 1 to 2 KB.
	maxTokens = 1024
)

// errUnreadable stands for an error that may repeat what it could not read.
var errUnreadable = errors.New("what is stored cannot be read")

// tokens are the access tokens of this node, by the credentials that they were got with.
type tokens struct {
	requests  context.Context //nolint:containedctx // the lifetime of requests, cut by the engine's stop
	roundTrip func(*http.Request, *policy.Connection) (*http.Response, error)
	userAgent string
	minAge    time.Duration

	mu   sync.Mutex
	held map[[sha256.Size]byte]*token
}

// token is what one set of credentials has got, or is getting. Its fields are under the lock of tokens.
type token struct {
	text    string
	got     time.Time
	until   time.Time // when another is to be got; zero = at once
	ends    time.Time // when it is of no use any more
	failed  error     // of the last request; nil = it succeeded
	pause   time.Time // after a failure: until when none is made
	getting chan struct{}
}

func newTokens(
	requests context.Context, userAgent string, roundTrip func(*http.Request, *policy.Connection) (*http.Response, error),
) *tokens {
	return &tokens{
		requests: requests, roundTrip: roundTrip, userAgent: userAgent, minAge: minTokenAge,
		held: map[[sha256.Size]byte]*token{},
	}
}

// get returns a token that holds for a request, of whoever has asked for it. Of those who wait for the same one, one
// asks: its request goes on where others give up.
func (s *tokens) get(ctx context.Context, by *policy.Connection) (text string, err error) {
	key := credentialsOf(by)
	for {
		s.mu.Lock()
		t := s.entry(key)
		now := time.Now()
		switch {
		case t.text != "" && now.Before(t.until):
			defer s.mu.Unlock()
			return t.text, nil
		case t.getting == nil && t.failed != nil && now.Before(t.pause):
			defer s.mu.Unlock()
			return "", t.failed
		case t.getting == nil:
			t.getting = make(chan struct{})
			go s.renew(t, by)
		}
		getting := t.getting
		s.mu.Unlock()
		select {
		case <-getting:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		s.mu.Lock()
		text, failed := t.text, t.failed
		s.mu.Unlock()
		if failed != nil || text != "" { // also one that is for this request only
			return text, failed
		}
	}
}

// refused is told that an endpoint has answered 401 to this token. It reports whether another is worth asking for.
func (s *tokens) refused(by *policy.Connection, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.entry(credentialsOf(by))
	if t.text != text {
		return t.text != "" // somebody was faster
	}
	if time.Since(t.got) < s.minAge {
		return false
	}
	t.until, t.ends = time.Time{}, time.Time{}
	return true
}

func credentialsOf(by *policy.Connection) [sha256.Size]byte {
	// strings can always be written
	text, _ := json.Marshal([]any{by.OAuth2, by.CertificateAuthorities, by.MinimumTLSVersion})
	return sha256.Sum256(text)
}

// entry is under the lock. Where there are too many, one that nobody waits for is forgotten: it is got anew.
func (s *tokens) entry(key [sha256.Size]byte) *token {
	if t := s.held[key]; t != nil {
		return t
	}
	if len(s.held) >= maxTokens {
		for other, t := range s.held { // any
			if t.getting == nil {
				delete(s.held, other)
				break
			}
		}
	}
	s.held[key] = &token{}
	return s.held[key]
}

// renew makes one request for a token.
func (s *tokens) renew(t *token, by *policy.Connection) {
	text, lifetime, err := s.ask(by)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(t.getting)
	t.getting = nil
	now := time.Now()
	if err != nil && now.Before(t.ends) { // the one that is there holds for a while
		t.until = now.Add(tokenPause)
		return
	}
	t.failed, t.text, t.got, t.pause = err, text, now, now.Add(tokenPause)
	t.until, t.ends = now.Add(lifetime-min(lifetime/10, tokenReserve)), now.Add(lifetime)
}

// ask sends the credentials as RFC 6749, 2.3.1 wants every server to take them. No error repeats what was sent or got.
func (s *tokens) ask(by *policy.Connection) (text string, lifetime time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.requests, tokenTimeout)
	defer cancel()
	form := url.Values{"grant_type": {"client_credentials"}}
	if by.OAuth2.Scope != "" {
		form.Set("scope", by.OAuth2.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, by.OAuth2.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, fmt.Errorf("tokenUrl: %w", errUnreadable)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", s.userAgent)
	req.SetBasicAuth(url.QueryEscape(by.OAuth2.ClientID), url.QueryEscape(by.OAuth2.ClientSecret))
	// The token server is another party than the endpoint: it is shown no client certificate.
	trusted := &policy.Connection{
		MinimumTLSVersion: by.MinimumTLSVersion, CertificateAuthorities: by.CertificateAuthorities,
	}
	resp, err := s.roundTrip(req, trusted)
	if err != nil {
		return "", 0, noToken(by, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenBytes))
	if err != nil {
		return "", 0, noToken(by, err)
	}
	text, lifetime, problem := readToken(resp.StatusCode, body)
	if problem != "" {
		return "", 0, fmt.Errorf("no token from %s: %s", by.OAuth2.TokenURL, problem)
	}
	return text, lifetime, nil
}

// noToken is the error of a request that got no response.
func noToken(by *policy.Connection, err error) error {
	return &PlainError{Text: "no token from " + by.OAuth2.TokenURL + ": " + ErrorText(err), Cause: err}
}

// readToken reads a token server's answer (RFC 6749, 5.1 and 5.2). The problem repeats nothing of it but the word for
// an error.
func readToken(status int, body []byte) (text string, lifetime time.Duration, problem string) {
	var answer struct {
		Token    string          `json:"access_token"`
		Type     string          `json:"token_type"`
		Lifetime json.RawMessage `json:"expires_in"`
		Error    string          `json:"error"`
	}
	unreadable := json.Unmarshal(body, &answer) != nil
	switch {
	case status != http.StatusOK && answer.Error != "" && len(answer.Error) <= 64 &&
		strings.Trim(answer.Error, "abcdefghijklmnopqrstuvwxyz_") == "":
		return "", 0, fmt.Sprintf("it answered %d %s", status, answer.Error)
	case status != http.StatusOK:
		return "", 0, fmt.Sprintf("it answered %d", status)
	case unreadable:
		return "", 0, "its answer is no JSON object with an access_token"
	case answer.Type != "" && !strings.EqualFold(answer.Type, "bearer"):
		return "", 0, "its answer has a token_type that is not Bearer"
	case answer.Token == "" || strings.ContainsFunc(answer.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", 0, "its answer has no access_token that a header can carry"
	}
	return answer.Token, lifetimeOf(answer.Lifetime), ""
}

// lifetimeOf reads seconds, which some servers write as a string.
func lifetimeOf(raw json.RawMessage) time.Duration {
	seconds, err := strconv.ParseFloat(string(bytes.Trim(raw, `"`)), 64)
	switch most := maxTokenLifetime.Seconds(); {
	case err != nil || seconds != seconds:
		return tokenLifetime
	case seconds > most:
		return maxTokenLifetime
	default:
		return time.Duration(max(seconds, 0) * float64(time.Second))
	}
}

// Token returns an access token for a connection with OAuth2, requested if necessary.
func (c *Client) Token(by *policy.Connection) (string, error) {
	ctx, cancel := context.WithTimeout(c.requests, tokenTimeout+time.Second)
	defer cancel()
	return c.tokens.get(ctx, by)
}
