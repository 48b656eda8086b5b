package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

// Rejected requests are in the log and in the audit, counted for each minute, address, status and topic, without a
// credential.
func TestRejectedRequestsAreAudited(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := setup(t, func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s.topic("orders", "")
	reader := s.apiKey("reader", "read", "")
	const secret = "planted-wrong-credential"
	for range 3 {
		s.publish("orders", secret, "[]").rejected(401, "Unauthorized")
	}
	s.publish(secret, secret, "[]").rejected(401, "Unauthorized")
	s.send(http.MethodGet, "/v1/topics", "", "Authorization", "Bearer "+secret).
		rejected(401, "Unauthorized")
	s.send(http.MethodGet, "/v1/topics", "").rejected(401, "Unauthorized")
	s.send(http.MethodDelete, "/v1/topics/orders", "", "Authorization", "Bearer "+reader).
		rejected(403, "Forbidden")
	s.publish("orders", reader, "[]").rejected(403, "Forbidden")
	wrong, throttled := 3, 0
	for ; throttled < 3; wrong++ { // the limit allows one more each second
		if s.publish("orders", secret, "[]").status == http.StatusTooManyRequests {
			throttled++
			wrong--
		}
	}
	s.get("/v1/topics/nothing").rejected(404, "NotFound")

	const query = "SELECT actor, address, coalesce(topic, '') AS topic, details FROM postrider.audit " +
		"WHERE action = 'requests_rejected' ORDER BY actor, topic, details"
	require.Empty(t, s.rows(query), "not one row for each request")
	s.writeRejections()
	type row struct {
		actor, topic  string
		status, times int
	}
	var got []row
	for _, r := range s.rows(query) {
		require.Equal(t, "127.0.0.1", r["address"])
		details := r["details"].(map[string]any)
		got = append(got,
			row{r["actor"].(string), r["topic"].(string), int(details["status"].(float64)), int(details["times"].(float64))})
	}
	require.ElementsMatch(t, []row{
		{"key:reader", "orders", 403, 2},
		{"unauthenticated", "", 401, 3},
		{"unauthenticated", "orders", 401, wrong},
		{"unauthenticated", "orders", 429, throttled},
	}, got)
	require.Equal(t, 4, strings.Count(log.String(), "requests rejected"))
	require.Contains(t, log.String(), "client=127.0.0.1")
	require.Zero(t, s.count("SELECT count(*)::int FROM postrider.audit a WHERE a::text LIKE '%'||$1||'%'", secret))
	require.NotContains(t, log.String(), secret)
	s.writeRejections()
	require.Len(t, s.rows(query), 4, "each is written once")
}

// Addresses that a client has many of are counted together, beyond a hundred rows in a minute. Rejections of known
// actors have their own bound: those of unknown clients do not hide them.
func TestRejectedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := setup(t, trust("127.0.0.0/8"))
	s.topic("orders", "")
	reader := s.apiKey("reader", "read", "")
	for i := range 150 {
		s.send(http.MethodGet, "/v1/topics", "", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i)).is(401)
	}
	s.send(http.MethodGet, "/v1/topics", "", "X-Forwarded-For", "2001:db8:1:2::7").is(401)
	for i := range 110 {
		s.send(http.MethodDelete, "/v1/topics/orders", "", "Authorization", "Bearer "+reader, "X-Forwarded-For",
			fmt.Sprintf("198.51.100.%d", i)).is(403)
	}
	s.writeRejections()
	require.Equal(t, []map[string]any{
		{"actor": "key:reader", "rows": int32(101), "times": int32(110), "others": int32(10)},
		{"actor": "unauthenticated", "rows": int32(101), "times": int32(151), "others": int32(51)},
	}, s.rows(`SELECT actor, count(*)::int AS rows, sum((details ->> 'times')::int)::int AS times,
		       sum((details ->> 'times')::int) FILTER (WHERE address IS NULL)::int AS others
		  FROM postrider.audit WHERE action = 'requests_rejected' GROUP BY actor ORDER BY actor`))
}

// writeRejections records the rejected requests, as each minute and at the end.
func (s *service) writeRejections() {
	ended, cancel := context.WithCancel(s.t.Context())
	cancel()
	s.server.Run(ended)
}
