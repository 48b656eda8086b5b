package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/server"
)

func withDev(dev server.Dev) func(*server.Options) {
	return func(o *server.Options) { o.Dev = &dev }
}

// An SDK publishes to the root of a topic's own host, with a key or a signature for that URL.
func TestPublishToAHost(t *testing.T) {
	t.Parallel()
	s := setup(t, withDev(server.Dev{DemoTopic: "demo"}))
	send := func(host, key string) response {
		return s.toHost(host, "aeg-sas-key", key)
	}
	require.Contains(t, send("127.0.0.1:7480", "wrong").rejected(404, "NotFound").Message, "publish to /topics/{topic}")
	demo := s.topic("demo", "")
	send("postrider:7480", demo).is(200)
	orders := s.topic("Orders", "")
	s.topic("shop", `{"kind":"namespace"}`)
	for _, host := range []string{
		"orders.localhost:7480", "ORDERS.eventgrid.example.com", "orders", "postrider", "[::1]:1",
	} {
		send(host, orders).is(200)
	}
	send("demo.localhost", demo).is(200)
	send("demo.localhost", orders).rejected(401, "Unauthorized")
	s.topic("parcels", "")
	require.Contains(t, send("postrider", orders).rejected(404, "NotFound").Message,
		`host "postrider" names none of the topics (Orders, demo, parcels)`)
	signed := token(t, orders, "https://orders.localhost/api/events", "6/15/2126 6:20:15 PM", javaScript)
	s.toHost("orders.localhost", "aeg-sas-token", signed).is(200)
	require.Equal(t, 6, s.count("SELECT count(*) FROM postrider.events WHERE topic = 'Orders'"))

	relay, cloud := s.topic("relay", `{"relay":"azure"}`),
		s.topic("cloud", `{"relay":"azure","inputSchema":"CloudEventSchemaV1_0"}`)
	got := s.serveHost("relay.localhost", http.MethodPost, azureValidation, "aeg-sas-key", relay, "aeg-event-type",
		"SubscriptionValidation", "aeg-subscription-name", "FEED")
	require.Contains(t, got.is(200).body, azureCode)
	s.serveHost("cloud.localhost", http.MethodOptions, "", "aeg-sas-key", cloud, "WebHook-Request-Origin", "x").is(200)
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.relay_feeds WHERE state = 'active'"))

	s.with().toHost("orders.localhost", "aeg-sas-key", orders).rejected(404, "NotFound")
}

// toHost publishes to the root of a host.
func (s *service) toHost(host, header, credential string) response {
	s.t.Helper()
	return s.serveHost(host, http.MethodPost, gridEvents("a"), header, credential)
}

// serveHost makes a request to the root of a host.
func (s *service) serveHost(host, method, body string, headers ...string) response {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, "/api/events?api-version=2018-01-01",
		strings.NewReader(body))
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(got, r)
	return response{s.t, got.Code, got.Header(), got.Body.String()}
}

// A TokenCredential sends bearer tokens that no server but Azure's can check.
func TestAnyBearerPublishesAndReceives(t *testing.T) {
	t.Parallel()
	s := setup(t, withDev(server.Dev{AnyBearer: true}))
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.subscription("orders", "pull", `{"deliveryConfiguration":{"deliveryMode":"Queue"},
		"eventDeliverySchema":"CloudEventSchemaV1_0"}`)
	send := func(s *service, path, body string, headers ...string) response {
		return s.send(http.MethodPost, path, body, append(headers, "Content-Type", "application/cloudevents+json")...)
	}
	const publish, jwt = "/topics/orders/api/events", "Bearer eyJhbGciOiJub25lIn0.e30."
	const receive = "/topics/orders/eventsubscriptions/pull:receive"
	send(s, publish, cloudEvent("a"), "Authorization", jwt).is(200)
	s.send(http.MethodPost, receive, "", "Authorization", jwt).is(200)
	send(s, publish, cloudEvent("a"), "Authorization", "Bearer prk_gone").rejected(401, "Unauthorized")
	send(s, publish, cloudEvent("a"), "aeg-sas-key", "any").rejected(401, "Unauthorized")
	s.send(http.MethodGet, "/v1/topics", "", "Authorization", jwt).rejected(401, "Unauthorized")
	for _, other := range []*service{s.with(), s.with(withDev(server.Dev{}))} {
		send(other, publish, cloudEvent("a"), "Authorization", jwt).rejected(401, "Unauthorized")
		other.send(http.MethodPost, receive, "", "Authorization", jwt).rejected(401, "Unauthorized")
	}
}

func TestResetOfDev(t *testing.T) {
	t.Parallel()
	calls, failure := 0, error(nil)
	s := setup(t, withDev(server.Dev{Reset: func(context.Context) error { calls++; return failure }}))
	s.delete("/v1/dev/state").is(204)
	s.send(http.MethodDelete, "/v1/dev/state", "").rejected(401, "Unauthorized")
	operator := s.apiKey("o", "operate", "")
	s.send(http.MethodDelete, "/v1/dev/state", "", "Authorization", "Bearer "+operator).rejected(403, "Forbidden")
	require.Equal(t, 1, calls)
	failure = errors.New("no lock")
	s.delete("/v1/dev/state").rejected(500, "InternalError")
	s.with().delete("/v1/dev/state").rejected(404, "NotFound")
}

// A reset waits for a publish that is stored, and not for one whose body is not complete.
func TestResetWaitsForPublishes(t *testing.T) {
	t.Parallel()
	var s *service
	published := make(chan int, 2)
	s = setup(t, withDev(server.Dev{Reset: func(context.Context) error {
		published <- s.count("SELECT count(*) FROM postrider.events")
		return nil
	}}))
	key := s.topic("orders", "")
	send := func(body io.Reader) (status chan int) {
		status = make(chan int, 1)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/topics/orders/api/events", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("aeg-sas-key", key)
		go func() {
			got := httptest.NewRecorder()
			s.server.Handler().ServeHTTP(got, r)
			status <- got.Code
		}()
		return status
	}
	reader, writer := io.Pipe()
	paused := send(reader)
	_, err := io.WriteString(writer, "[") // it is being read
	require.NoError(t, err)
	s.delete("/v1/dev/state").is(204)
	require.Zero(t, <-published)

	tx, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE postrider_internal.events IN EXCLUSIVE MODE")
	require.NoError(t, err)
	_, err = io.WriteString(writer, gridEvents("a")[1:])
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	testnode.Within(t, "the publish waits for the table", func() bool {
		return s.count("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "+
			"'postrider_internal.events'::regclass") == 1
	})
	reset := make(chan int, 1)
	go func() {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/v1/dev/state", nil)
		r.Header.Set("Authorization", "Bearer "+adminToken)
		got := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(got, r)
		reset <- got.Code
	}()
	testnode.Within(t, "the reset waits for the publish", func() bool {
		return len(published) > 0 || s.server.ResetWaits()
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, http.StatusOK, <-paused)
	require.Equal(t, http.StatusNoContent, <-reset)
	require.Equal(t, 1, <-published, "after the publish")
}
