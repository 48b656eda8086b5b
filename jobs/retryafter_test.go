package jobs_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/policy"
)

// retryAfterEndpoint responds with 503 and the Retry-After of its query string.
func retryAfterEndpoint(t *testing.T) *endpoint {
	t.Helper()
	return newEndpoint(t, func(w http.ResponseWriter, r request) {
		u, _ := url.Parse(r.uri)
		w.Header().Set("Retry-After", u.Query().Get("after"))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
}

func TestRetryAfterMovesTheNextAttempt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := retryAfterEndpoint(t)
	const floor = 30 * time.Second // of 503 under ga-2021
	rows := map[string]struct {
		after string
		want  time.Duration
	}{
		"seconds":          {"120", 2 * time.Minute},
		"a-day":            {"86400", time.Hour}, // the cap
		"less-than-policy": {"5", floor},
		"garbage":          {"soon", floor},
		"absent":           {"", floor},
	}
	for name, row := range rows {
		subscribe(t, tn, name, e.URL+"/?after="+url.QueryEscape(row.after), nil)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	subscribe(t, tn, "date", e.URL+"/?after="+url.QueryEscape(at.Format(http.TimeFormat)), nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(rows)+1)
	for name, row := range rows {
		requireGap(t, tn, row.want, name)
	}
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'date' "+
		"AND next_attempt_at BETWEEN $1::timestamptz - interval '1 ms' AND $1::timestamptz + interval '1 ms'", at))
	const explained = "SELECT count(*) FROM postrider.delivery_attempts WHERE retry_after_ms IS NOT NULL AND why LIKE $1"
	require.Equal(t, 3, tn.Count(t, explained, "%Retry-After requests%"), "only if it decided")
	require.Equal(t, 1, tn.Count(t, explained, "%Retry-After requests 24 h, capped at 1 h; lowers%"))
}

// However long an endpoint's Retry-After, a last attempt is made before the time to live ends.
func TestRetryAfterNeverOutlivesTheTimeToLive(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := retryAfterEndpoint(t)
	for _, p := range policy.Builtins() {
		subscribe(t, tn, p.Name, e.URL+"/?after=2000000000&policy="+p.Name, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = p.Name, new(10)
		})
	}
	n := len(policy.Builtins())
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, n)
	require.Equal(t, n,
		tn.Count(t, `SELECT count(*) FROM postrider.deliveries d JOIN postrider.retry_policies p ON p.name = d.subscription
		WHERE d.state = 'pending' AND d.next_attempt_at = d.time_to_live_since + interval '10 minutes' -
		    make_interval(secs => p.ack_timeout_seconds)`))
	require.Equal(t, n, tn.Rows(t, "delivery_attempts", "why LIKE '%, shortened for a last attempt before the delivery "+
		"ends; lowers%'"))
	require.Equal(t, n, travel(t, tn))
	tn.AttemptsMade(t, n)
	testnode.Within(t, "all deliveries end", func() bool {
		travel(t, tn)
		return tn.Count(t, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded'") == n
	})
	require.Zero(t, tn.Rows(t, "dead_letters", "attempts NOT BETWEEN 2 AND 3 "+
		"OR last_outcome <> 'Busy'"), "60 s before its end a delivery may have time for a third")
}
