package endpoint

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

// newTokenServer returns a client of a token server with this handler.
func newTokenServer(t *testing.T, handle http.HandlerFunc) (*Client, *endpointconf.Connection) {
	t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handle(w, r)
	}))
	t.Cleanup(e.Close)
	return loopbackClient(t), &endpointconf.Connection{
		OAuth2: &endpointconf.OAuth2{TokenURL: e.URL, ClientID: "id", ClientSecret: "secret"},
	}
}

func TestOneRequestForAToken(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	begun, go_ := make(chan struct{}), make(chan struct{})
	c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		close(begun)
		<-go_
		fmt.Fprint(w, `{"access_token":"abc","token_type":"bearer","expires_in":"3600"}`)
	})
	var waiting sync.WaitGroup
	for range 50 {
		waiting.Go(func() {
			text, err := c.Token(by)
			if err != nil || text != "abc" {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.tokens.get(gone, by)
	require.ErrorIs(t, err, context.Canceled, "a canceled caller does not end the request for the others")
	close(go_)
	waiting.Wait()
	require.EqualValues(t, 1, requests.Load())
}

func TestLifetimesOfTokens(t *testing.T) {
	t.Parallel()
	for given, life := range map[string]time.Duration{
		"3600": time.Hour, `"60"`: time.Minute, "null": tokenLifetime, "0": tokenLifetime, "4000000000": maxTokenLifetime,
		"-5": 0,
	} {
		c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"access_token":"abc","expires_in":%s}`, given)
		})
		_, got, err := c.tokens.request(by)
		require.NoError(t, err, given)
		require.InDelta(t, life, got, float64(10*time.Second), given)
	}
	var requests atomic.Int64
	c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":-1}`, requests.Add(1))
	})
	for n := range 3 {
		text, err := c.Token(by)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("token-%d", n+1), text, "a token that ends at once serves one request")
	}
}

// While a token is valid, the failure of a token server to renew it has no effect.
func TestTokenIsUsedUntilItsEnd(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"access_token":"abc","expires_in":3600}`)
	})
	_, err := c.Token(by)
	require.NoError(t, err)
	failing.Store(true)
	age := func(ends time.Time) {
		c.tokens.mu.Lock()
		defer c.tokens.mu.Unlock()
		held := c.tokens.held[credentialsOf(by)]
		held.renewAt, held.ends = time.Now(), ends
		c.tokens.held[credentialsOf(by)] = held
	}
	age(time.Now().Add(time.Hour))
	text, err := c.Token(by)
	require.NoError(t, err)
	require.Equal(t, "abc", text)
	age(time.Now())
	_, err = c.Token(by)
	require.ErrorContains(t, err, "it responded with 500")
}

func TestResponsesOfTokenServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status  int
		body    string
		problem string
	}{
		{200, `{"access_token":"a.b-c"}`, ""},
		{200, `{"access_token":"a b"}`, "no access_token that a header can carry"},
		{200, `{"access_token":"a\r\nX: y"}`, "no access_token that a header can carry"},
		{200, `{"access_token":""}`, "no JSON object with an access_token"},
		{200, `{"access_token":"a","token_type":"mac"}`, "not Bearer"},
		{200, `<html>`, "no JSON object"},
		{200, `[]`, "no JSON object"},
		{400, `{"error":"invalid_scope"}`, "it responded with 400 invalid_scope"},
		{400, `{"error":"Planted <script>"}`, "it responded with 400"},
		{302, ``, "it responded with 302"},
	} {
		c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(row.status)
			fmt.Fprint(w, row.body)
		})
		text, err := c.Token(by)
		if row.problem == "" {
			require.NoError(t, err, row.body)
			require.NotEmpty(t, text, row.body)
			continue
		}
		require.ErrorContains(t, err, row.problem, row.body)
		require.NotContains(t, err.Error(), "lanted")
		require.NotContains(t, OriginalError(err).Error(), "lanted")
	}
}

// The address guard applies to token servers, and no redirect carries the secret elsewhere.
func TestTokenServersAreGuarded(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	c, by := newTokenServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	_, err := c.Token(by)
	require.ErrorContains(t, err, "it responded with 307")
	closed := NewClient(t.Context(), Options{MaxIdleConnections: 10})
	_, err = closed.Token(by)
	require.ErrorContains(t, err, "rejected address")
	require.NotContains(t, err.Error(), "secret")
	require.Zero(t, reached.Load())
}

// After an endpoint's 401 the request is sent once more with a new token, unless the rejected token was new.
func TestRejectedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	c, by := newTokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":3600}`, requests.Add(1))
	})
	var valid atomic.Value
	valid.Store("token-1")
	var seen atomic.Int64
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer e.Close()
	var released atomic.Int64
	try := func() int {
		sent := NewPayload([]byte("{}"), func() { released.Add(1) })
		status, results := 0, 0
		c.Send(&Request{
			URL: e.URL, Header: http.Header{}, Body: sent, Connection: by, AckTimeout: 5 * time.Second,
		}, func(resp Response, err error) error {
			sent.Drop()
			results++
			status = resp.Result.Status
			return err
		}, nil)
		require.Equal(t, 1, results)
		return status
	}
	require.Equal(t, 200, try())
	valid.Store("token-2")
	require.Equal(t, 401, try(), "a new token is not the cause")
	require.EqualValues(t, 2, seen.Load())
	c.tokens.minAge = 0
	require.Equal(t, 200, try())
	require.EqualValues(t, 4, seen.Load())
	require.EqualValues(t, 2, requests.Load())
	valid.Store("another")
	require.Equal(t, 401, try())
	require.EqualValues(t, 6, seen.Load(), "twice at most")
	require.EqualValues(t, 3, requests.Load())
	require.EqualValues(t, 4, released.Load(), "the memory of each body is released once")
}

// FuzzTokenResponse: whatever a token server responds, the outcome is a token that a header can carry, or an error that
// repeats nothing of the response but a word for an error.
func FuzzTokenResponse(f *testing.F) {
	f.Add(200, `{"access_token":"a.b","token_type":"Bearer","expires_in":3600}`)
	f.Add(200, `{"access_token":"a\r\nX: b"}`)
	f.Add(400, `{"error":"invalid_client","error_description":"pl4nted"}`)
	f.Add(200, `{"access_token":{},"expires_in":"1e999"}`)
	f.Add(500, ``)
	f.Fuzz(func(t *testing.T, status int, body string) {
		s := newTokens(t.Context(), "test", func(r *http.Request, _ *endpointconf.Connection) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader(body))
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, Request: r}, nil
		})
		by := &endpointconf.Connection{OAuth2: &endpointconf.OAuth2{TokenURL: "https://login/", ClientID: "id"}}
		text, lifetime, err := s.request(by)
		if err != nil {
			require.Empty(t, text)
			require.Less(t, len(err.Error()), 160)
			return
		}
		require.NotEmpty(t, text)
		require.False(t, strings.ContainsAny(text, "\r\n\x00 "))
		require.GreaterOrEqual(t, lifetime, time.Duration(0))
		require.LessOrEqual(t, lifetime, maxTokenLifetime)
	})
}
