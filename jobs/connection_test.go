package jobs_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/testnode"
)

func connecting(c endpointconf.Connection) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.Connection, s.RetryPolicy.MaxDeliveryAttempts = c, new(1) }
}

// tokenServer is an OAuth server that knows one client.
type tokenServer struct {
	url      string
	requests atomic.Int64
	failing  atomic.Int64 // status of the next responses; 0 = tokens
}

const plantedClientSecret = "pl@nted client/secret+1"

func newTokenServer(t *testing.T) *tokenServer {
	t.Helper()
	s := &tokenServer{}
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		n := s.requests.Add(1)
		id, secret, _ := (&http.Request{Header: r.header}).BasicAuth()
		switch {
		case s.failing.Load() != 0:
			w.WriteHeader(int(s.failing.Load()))
			_, _ = io.WriteString(w, `{"error":"temporarily_unavailable","error_description":"pl4nted description"}`)
		case id != "the%2Fclient" || secret != "pl%40nted+client%2Fsecret%2B1" ||
			r.body != "grant_type=client_credentials&scope=orders%2Fwrite":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"access_token":"planted-token-%d","token_type":"Bearer","expires_in":3600}`, n)
		}
	})
	s.url = e.URL + "/token"
	return s
}

func (s *tokenServer) credentials() endpointconf.Connection {
	return endpointconf.Connection{OAuth2: &endpointconf.OAuth2{
		TokenURL: s.url, ClientID: "the/client", ClientSecret: plantedClientSecret, Scope: "orders/write",
	}}
}

// Deliveries have a token that is requested once, and no stored text of a response contains it.
func TestDeliveriesHaveAToken(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	tokens := newTokenServer(t)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "you said "+r.header.Get("Authorization"))
	})
	subscribe(t, tn, "billing", e.URL, connecting(tokens.credentials()))
	subscribe(t, tn, "batched", e.URL, both(connecting(tokens.credentials()), batching(10, 64)))
	tn.Start(t)
	const events = 20
	publishMany(t, tn, events)
	tn.BecomeRows(t, 2*events, "dead_letters", "")
	for _, r := range e.requests() {
		require.Equal(t, "Bearer planted-token-1", r.header.Get("Authorization"))
	}
	require.EqualValues(t, 1, tokens.requests.Load(), "all of them share one")
	for _, view := range []string{"delivery_attempts", "dead_letters", "event_subscriptions", "audit"} {
		text, err := json.Marshal(everything(t, tn, view))
		require.NoError(t, err)
		require.NotContains(t, string(text), "planted-token", view)
		require.NotContains(t, string(text), "pl@nted", view)
	}
	require.NotZero(t, tn.Rows(t, "delivery_attempts", "response_excerpt = 'you said Bearer ***'"))
	require.Equal(t, 2, tn.Rows(t, "event_subscriptions", "oauth2_token_url = $1", tokens.url))
}

// A failing token server is an outcome of the attempt, which the policy retries. The endpoint is not called, and event
// subscriptions without a token are not affected.
func TestFailingTokenServer(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	tokens := newTokenServer(t)
	tokens.failing.Store(http.StatusServiceUnavailable)
	e, other := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "billing", e.URL, func(s *catalog.SubscriptionSpec) { s.Connection = tokens.credentials() })
	wrong := tokens.credentials()
	wrong.OAuth2.ClientSecret = "another"
	subscribe(t, tn, "wrong", e.URL, func(s *catalog.SubscriptionSpec) { s.Connection = wrong })
	subscribe(t, tn, "other", other.URL, nil)
	tn.Start(t)
	const events = 50
	began := time.Now()
	publishMany(t, tn, events)
	// Only first attempts are counted: on a busy machine a retry may be due before the last of them.
	tn.BecomeRows(t, 3*events, "delivery_attempts", "number = 1")
	require.Empty(t, e.requests())
	require.Len(t, other.requests(), events)
	require.Equal(t, 2*events, tn.Count(t, `SELECT count(*) FROM postrider.delivery_attempts WHERE outcome = 'Unauthorized'
		    AND status IS NULL AND verdict = 'retry' AND number = 1
		AND error = 'no token from `+tokens.url+`: it responded with 503 temporarily_unavailable'`))
	require.Less(t, tokens.requests.Load(), 20+2*int64(time.Since(began).Seconds()),
		"no request for a second after each failure, with each of the two credentials")

	tokens.failing.Store(0)
	sent := events
	// New events find out when a second has passed: a retry of all in each turn would reach their time to live.
	testnode.Within(t, "both token servers have been requested again", func() bool {
		sent++
		tn.Publish(t, topicName, fmt.Sprint("later-", sent), 1)
		tn.BecomeRows(t, 3*sent, "delivery_attempts", "number = 1")
		return len(e.requests()) > 0 && tn.Rows(t, "delivery_attempts",
			"subscription = 'wrong' AND error LIKE '%it responded with 401 invalid_client'") > 0
	})
	settle(t, tn)
	makeDue(t, tn)
	tn.BecomeRows(t, sent, "deliveries", "subscription = 'billing' AND state = 'delivered'")
	require.Len(t, e.requests(), sent)
}

// An endpoint that rejects deliveries without a token also rejects handshakes without one.
func TestHandshakesHaveAToken(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	tokens := newTokenServer(t)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if r.header.Get("Authorization") != "Bearer planted-token-1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		respondWithCode(w, r)
	})
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	require.Equal(t, catalog.HandshakeFailed, handshakeEnded(t, tn, "unknown", spec).State)
	spec.Connection = tokens.credentials()
	require.Equal(t, catalog.HandshakeSucceeded, handshakeEnded(t, tn, "known", spec).State)
	tokens.failing.Store(500)
	spec.Connection.OAuth2.Scope = "another"
	failed := handshakeEnded(t, tn, "failing", spec)
	require.Equal(t, catalog.HandshakeFailed, failed.State)
	require.Contains(t, failed.Message, "no token from")
	text, err := json.Marshal(everything(t, tn, "handshake_steps"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "planted-token")
	require.NotContains(t, string(text), base64.StdEncoding.EncodeToString([]byte(plantedClientSecret)))
}
