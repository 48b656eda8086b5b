package e2e

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A day of ga-2021 takes ten seconds here, Retry-After and the event subscription's own time to live included, and
// settings stay as they were written.
func TestDevShortensADay(t *testing.T) {
	t.Parallel()
	const scale = 8640
	d := startDev(t, "--time-scale", "8640")
	require.Contains(t, d.stdout.String(), "8640 times as fast: 24 hours of retries take 10s")
	d.subscribe(demoTopic, "day", d.info.Sink+"/status/503")
	d.manage(http.StatusCreated, http.MethodPut, "/v1/topics/demo/subscriptions/hours",
		`{"endpointUrl":"`+d.info.Sink+`/status/503","retryPolicy":{"eventTimeToLiveInMinutes":360}}`)
	putsOff := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "43200")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(putsOff.Close)
	d.subscribe(demoTopic, "puts-off", putsOff.URL)
	d.publishDemo("scaled")
	eventually(t, "the days of all are over", d.db.atLeast(3,
		"SELECT count(*) FROM postrider.dead_letters WHERE event_id = 'scaled' AND reason = 'TimeToLiveExceeded'"))

	// Under ga-2021 an event is attempted 11 times in 24 hours and 9 times in 6. A busy machine is late for each.
	// dev's own event may have come to them, too
	const course = `SELECT attempts FROM postrider.deliveries WHERE event_id = 'scaled' AND subscription = $1`
	for subscription, most := range map[string]int{"day": 11, "hours": 9, "puts-off": 10} {
		attempts := one[int](d.db, course, subscription)
		require.True(t, attempts > 1 && attempts <= most, "%s: %d", subscription, attempts)
	}
	require.Equal(t, 1, one[int](d.db, `SELECT count(*)::int FROM postrider.delivery_attempts WHERE number = 1
		AND why LIKE '%Retry-After requests 5 s, capped at 416 ms%' AND delivery_id =
		(SELECT delivery_id FROM postrider.deliveries WHERE event_id = 'scaled' AND subscription = 'puts-off')`))
	const lasted = `SELECT extract(epoch FROM finished_at - time_to_live_since)::float8 FROM postrider.deliveries
		WHERE event_id = 'scaled' AND subscription = $1`
	day := one[float64](d.db, lasted, "day")
	require.GreaterOrEqual(t, day, 9.9)
	require.Less(t, day, 100.0, "a busy machine ends it late")
	require.Equal(t, 360, one[int](d.db,
		"SELECT event_time_to_live_in_minutes FROM postrider.event_subscriptions WHERE subscription = 'hours'"))

	// Step 4 is 5 minutes; a busy machine decides late.
	wait := one[float64](d.db, `SELECT (extract(epoch FROM next_attempt_at - started_at) - duration_ms / 1000)::float8
		FROM postrider.delivery_attempts
		WHERE number = 4 AND delivery_id = (SELECT delivery_id FROM postrider.deliveries WHERE event_id = 'scaled'
		    AND subscription = 'day')`)
	require.GreaterOrEqual(t, wait, 300.0/scale)
	require.Less(t, wait, 100.0, "reads of the database clock are not scaled")
}

func TestDevRejectsAScale(t *testing.T) {
	t.Parallel()
	for _, scale := range []string{"0", "-1", "86401"} {
		rejected := postrider(t, nil, "dev", "--time-scale="+scale)
		require.Equal(t, 2, rejected.code)
		require.Contains(t, rejected.stderr, "--time-scale "+scale+": must be 1 to 86400")
	}
}
