package web_test

import (
	"html"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var shownSQL = regexp.MustCompile(`(?s)aria-label="SQL">(.*?)</pre>`)

// The equivalent SQL runs as shown, also with quotes.
func TestEquivalentSQLRuns(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.subscribe(t, "orders", "billing")
	b.pause(t, "orders", "billing")
	b.publish(t, "orders", "it's 1", "it's 2")
	for path, rows := range map[string]int{
		"/ui/events": 2,
		"/ui/events?event=it%27s+1&topic=orders&type=it%27s+1&subject=it%27s&from=2026-01-01T00:00&to=2999-01-01T00:00": 1,
		"/ui/events?unmatched=1":                                0,
		"/ui/events?event=00000000-0000-7000-8000-000000000000": 0,
		"/ui/deliveries":                                        2,
		"/ui/deliveries?event=it%27s+2&topic=orders&subscription=billing&state=pending":     1,
		"/ui/deliveries?outcome=Busy&hold=paused":                                           0,
		"/ui/deliveries?event=00000000-0000-7000-8000-000000000000":                         0,
		"/ui/dead-letters?reason=TimeToLiveExceeded&status=503&outcome=Busy&eventId=it%27s": 0,
	} {
		statement := shownSQL.FindStringSubmatch(b.page(t, path))
		require.NotNil(t, statement, path)
		result, err := b.pool.Query(t.Context(), html.UnescapeString(statement[1]))
		require.NoError(t, err, path)
		n := 0
		for result.Next() {
			n++
		}
		require.NoError(t, result.Err(), "%s: %s", path, statement[1])
		require.Equal(t, rows, n, path)
	}
}
