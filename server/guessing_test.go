package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/server"
)

// Wrong credentials from one address are limited together, whatever is guessed and whatever addresses the headers
// contain. Credentials that were valid from this address, and other addresses, are not limited.
func TestGuessingIsLimited(t *testing.T) {
	t.Parallel()
	node := setup(t)
	keys := node.put("/v1/topics/orders", "").json(201)
	key1, key2, reader := keys["key1"].(string), keys["key2"].(string), node.apiKey("ci", "read", "")
	type kind struct {
		name   string
		status int
		guess  func(s *service, n int) response
	}
	for name, kinds := range map[string][]kind{ //nolint:paralleltest // one after the other: they share addresses
		"publishing": {
			{"access keys", 401, func(s *service, n int) response { return s.publish("orders", fmt.Sprint("wrong", n), "[]") }},
			{"one access key", 401, func(s *service, _ int) response { return s.publish("orders", "wrong", "[]") }},
			{"keys of a topic that does not exist", 401, func(s *service, n int) response {
				return s.publish("parcels", fmt.Sprint("wrong", n), "[]")
			}},
			{"with spoofed headers", 401, func(s *service, n int) response {
				return s.publish("orders", fmt.Sprint("wrong", n), "[]", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n%256),
					"Forwarded", fmt.Sprintf("for=203.0.113.%d", n%256))
			}},
		},
		"management": {
			{"API keys", 401, func(s *service, n int) response {
				return s.send(http.MethodGet, "/v1/topics", "", "Authorization", fmt.Sprintf("Bearer prk_%043d", n))
			}},
			{"the admin token", 401, func(s *service, n int) response {
				return s.send(http.MethodGet, "/v1/topics", "", "Authorization", fmt.Sprint("Bearer guess-", n))
			}},
			{"codes of a handshake", 404, func(s *service, _ int) response {
				return s.send(http.MethodGet, "/topics/orders/eventsubscriptions/billing/validate?id=guessed", "")
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.with()
			s.t = t
			read := func() response { return s.send(http.MethodGet, "/v1/topics", "", "Authorization", "Bearer "+reader) }
			s.publish("orders", key1, "[]").is(200)
			read().is(200)
			s.get("/v1/topics").is(200)
			began, tried := time.Now(), 0
			for range 29 / len(kinds) {
				for _, k := range kinds {
					k.guess(s, tried).is(k.status)
					tried++
				}
			}
			for _, k := range kinds { // the limit allows one more each second
				last := k.guess(s, tried)
				for ; last.status == k.status && tried < 1000; tried++ {
					last = k.guess(s, tried)
				}
				require.Contains(t, last.rejected(429, "TooManyRequests").Message, "from your address", k.name)
				require.Regexp(t, `^[1-9]\d*$`, last.header.Get("Retry-After"))
			}
			require.GreaterOrEqual(t, tried, 29)
			require.LessOrEqual(t, tried, 30+len(kinds)+int(time.Since(began).Seconds()), "each guess counts")
			s.publish("orders", key1, "[]").is(200)
			read().is(200)
			s.get("/v1/topics").is(200)
			s.send(http.MethodPost, publishPath, "[]").rejected(401, "Unauthorized") // no credential is no guess

			// The address of serve is another one.
			s.serve(access.Actor{}, http.MethodPost, publishPath, "[]", "aeg-sas-key", key2).is(200)
			s.serve(access.Actor{}, http.MethodPost, publishPath, "[]", "aeg-sas-key", "wrong").is(401)
		})
	}
}

// Responses without a valid credential do not show whether a topic exists: a wrong key, an unknown API key and a wrong
// signature get the same response.
func TestUnknownTopicsRespondLikeWrongKeys(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for name, headers := range map[string][]string{
		"a key":         {"aeg-sas-key", "cG9zdHJpZGVyLWEta2V5LWZvci1hLXRlc3Qtb2YtdGltZSE="},
		"a bearer":      {"Authorization", "Bearer wrong"},
		"an API key":    {"Authorization", "Bearer prk_" + fmt.Sprintf("%043d", 0)},
		"no credential": nil,
	} {
		for _, path := range []string{"/topics/%s/api/events", "/topics/%s:publish"} {
			there := s.send(http.MethodPost, fmt.Sprintf(path, "orders"), "[]", headers...)
			missing := s.send(http.MethodPost, fmt.Sprintf(path, "parcels"), "[]", headers...)
			there.rejected(401, "Unauthorized")
			for _, own := range []string{"Date", "X-Ms-Request-Id"} {
				there.header.Del(own)
				missing.header.Del(own)
			}
			require.Equal(t, there, missing, name)
		}
	}
}

func TestRequestsPerSecond(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) { o.RequestsPerSecond = 1 })
	made := s.with().put("/v1/topics/orders", "").json(201)
	key1, key2 := made["key1"].(string), made["key2"].(string)
	last := s.publish("orders", key1, "[]")
	for last.status == 200 {
		last = s.publish("orders", key1, "[]")
	}
	require.Contains(t, last.rejected(429, "TooManyRequests").Message, "more than 1 requests a second")
	require.Equal(t, "1", last.header.Get("Retry-After"))
	s.publish("orders", key2, "[]").is(200) // another credential has its own
	s.send(http.MethodGet, "/healthz", "").is(200)

	s.writeRejections()
	require.Zero(t, s.count("SELECT count(*)::int FROM postrider.audit WHERE action = 'requests_rejected'"),
		"the credential was not checked, so the audit does not call it wrong")
}
