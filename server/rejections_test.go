package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

// Rejected requests are in the log and in the audit, counted for each minute, address, status and topic, without a
// credential.
func TestRejectedRequestsAreAudited(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := setup(t, func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.topic("orders", "")
	reader := b.apiKey("reader", "read", "")
	const secret = "planted-wrong-credential"
	for range 3 {
		b.publish("orders", secret, "[]").rejected(http.StatusUnauthorized, "Unauthorized")
	}
	b.publish(secret, secret, "[]").rejected(http.StatusUnauthorized, "Unauthorized")
	b.send(http.MethodGet, "/v1/topics", "", "Authorization", "Bearer "+secret).
		rejected(http.StatusUnauthorized, "Unauthorized")
	b.send(http.MethodGet, "/v1/topics", "").rejected(http.StatusUnauthorized, "Unauthorized")
	b.send(http.MethodDelete, "/v1/topics/orders", "", "Authorization", "Bearer "+reader).
		rejected(http.StatusForbidden, "Forbidden")
	b.publish("orders", reader, "[]").rejected(http.StatusForbidden, "Forbidden")
	throttled := 0
	for range 40 {
		if b.publish("orders", secret, "[]").status == http.StatusTooManyRequests {
			throttled++
		}
	}
	require.Positive(t, throttled)
	b.manage(http.MethodGet, "/v1/topics/nothing", "").rejected(http.StatusNotFound, "NotFound")

	const query = "SELECT actor, address, coalesce(topic, '') AS topic, details FROM postrider.audit " +
		"WHERE action = 'requests_rejected' ORDER BY actor, topic, details"
	require.Empty(t, b.rows(query), "not one row for each request")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.server.Run(ended)
	type row struct {
		actor, topic  string
		status, times int
	}
	var got []row
	for _, r := range b.rows(query) {
		require.Equal(t, "127.0.0.1", r["address"])
		details := r["details"].(map[string]any)
		got = append(got,
			row{r["actor"].(string), r["topic"].(string), int(details["status"].(float64)), int(details["times"].(float64))})
	}
	require.ElementsMatch(t, []row{
		{"key:reader", "orders", 403, 2},
		{"unauthenticated", "", 401, 3},
		{"unauthenticated", "orders", 401, 43 - throttled},
		{"unauthenticated", "orders", 429, throttled},
	}, got)
	require.Equal(t, 4, strings.Count(log.String(), "requests rejected"))
	require.Contains(t, log.String(), "client=127.0.0.1")
	require.Zero(t, b.count("SELECT count(*)::int FROM postrider.audit a WHERE a::text LIKE '%'||$1||'%'", secret))
	require.NotContains(t, log.String(), secret)
	b.server.Run(ended)
	require.Len(t, b.rows(query), 4, "each is written once")
}

// Addresses that a client has many of are counted together, beyond a hundred rows in a minute.
func TestRejectedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	for i := range 150 {
		from := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String()
		b.send(http.MethodGet, "/v1/topics", "", "X-Forwarded-For", from).rejected(http.StatusUnauthorized, "Unauthorized")
	}
	b.send(http.MethodGet, "/v1/topics", "", "X-Forwarded-For", "2001:db8:1:2::7").
		rejected(http.StatusUnauthorized, "Unauthorized")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.server.Run(ended)
	rows := b.rows("SELECT address, details ->> 'times' AS times FROM postrider.audit " +
		"WHERE action = 'requests_rejected' ORDER BY address NULLS FIRST")
	require.Len(t, rows, 101)
	require.Nil(t, rows[0]["address"])
	require.Equal(t, "51", rows[0]["times"])
}

// Rejections of known actors have their own bound: those of unknown clients do not hide them.
func TestRejectionsOfKnownActorsHaveTheirOwnBound(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	b.topic("orders", "")
	reader := b.apiKey("reader", "read", "")
	for i := range 100 {
		from := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String()
		b.send(http.MethodGet, "/v1/topics", "", "X-Forwarded-For", from).rejected(http.StatusUnauthorized, "Unauthorized")
	}
	for i := range 110 {
		b.send(http.MethodDelete, "/v1/topics/orders", "", "Authorization", "Bearer "+reader, "X-Forwarded-For",
			netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String()).rejected(http.StatusForbidden, "Forbidden")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.server.Run(ended)
	require.Equal(t, []map[string]any{
		{"actor": "key:reader", "rows": int32(101), "times": int32(110), "others": int32(10)},
		{"actor": "unauthenticated", "rows": int32(100), "times": int32(100), "others": nil},
	}, b.rows(`
		SELECT actor, count(*)::int AS rows, sum((details ->> 'times')::int)::int AS times,
		       sum((details ->> 'times')::int) FILTER (WHERE address IS NULL)::int AS others
		  FROM postrider.audit WHERE action = 'requests_rejected' GROUP BY actor ORDER BY actor`))
}

// Requests beyond the rate are rejected before their credential is checked: the audit does not call it wrong.
func TestRequestsBeyondTheRateAreNotAudited(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.RequestsPerSecond = 1 })
	throttled := func() bool {
		r := b.send(http.MethodGet, "/v1/topics", "", "Authorization", "Bearer "+adminToken)
		return r.status == http.StatusTooManyRequests
	}
	require.Eventually(t, throttled, 20*time.Second, time.Millisecond)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.server.Run(ended)
	require.Zero(t, b.count("SELECT count(*)::int FROM postrider.audit WHERE action = 'requests_rejected'"))
}
