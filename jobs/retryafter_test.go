package jobs_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

// retryAfterEndpoint answers 503 with the Retry-After that its query string asks for.
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
	b := setup(t)
	e := retryAfterEndpoint(t)
	const floor = 30 * time.Second // of 503 under ga-2021
	rows := map[string]struct {
		after string
		want  time.Duration
	}{
		"seconds":           {"120", 2 * time.Minute},
		"less-than-policy":  {"5", floor},
		"zero":              {"0", floor},
		"negative":          {"-120", floor},
		"garbage":           {"soon", floor},
		"fraction":          {"120.5", floor},
		"two-values":        {"120, 240", floor},
		"absent":            {"", floor},
		"more-than-int64":   {"99999999999999999999", floor},
		"date-in-the-past":  {"Wed, 21 Oct 2015 07:28:00 GMT", floor},
		"date-without-zone": {"Wed, 21 Oct 2099 07:28:00", floor},
	}
	for name, row := range rows {
		b.subscribe(t, name, e.URL+"/?after="+url.QueryEscape(row.after), nil)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	b.subscribe(t, "date", e.URL+"/?after="+url.QueryEscape(at.Format(http.TimeFormat)), nil)
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attemptsMade(t, len(rows)+1)
	for name, row := range rows {
		b.requireGap(t, row.want, name)
	}
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'date' AND next_attempt_at BETWEEN $1::timestamptz - interval '1 ms' AND $1::timestamptz + interval '1 ms'", at))
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE retry_after_ms IS NOT NULL AND why LIKE '%Retry-After asks for%'"), "only where it decided")
}

// However late an endpoint wants its next attempt, the delivery ends with its time to live.
func TestRetryAfterNeverOutlivesTheTimeToLive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := retryAfterEndpoint(t)
	policies := []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023"}
	for _, p := range policies {
		b.subscribe(t, p, e.URL+"/?after=2000000000", func(s *store.SubscriptionSpec) {
			s.RetryPolicy, s.EventTimeToLiveInMinutes = p, new(10)
		})
	}
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attemptsMade(t, len(policies))
	require.Equal(t, len(policies), b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND next_attempt_at = owed_since + interval '10 minutes'"))
	require.Equal(t, len(policies), b.travel(t))
	b.become(t, len(policies), "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded' AND attempts = 1 AND last_outcome = 'Busy'")
	require.Len(t, e.requests(), len(policies))
}
