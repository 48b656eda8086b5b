package web

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

func TestOutcomeChartSharesTheLastColour(t *testing.T) {
	t.Parallel()
	names := []string{"Busy", "TimedOut", "NotFound", "BadRequest", "SocketError", "Forbidden"}
	counts := &store.Counts{Outcomes: []store.Counted{{Name: "Delivered", Count: 50}}, Minutes: []store.Minute{{Outcomes: map[string]int64{"Delivered": 50}}, {}}}
	for i, name := range names {
		n := int64(10 - i)
		counts.Outcomes = append(counts.Outcomes, store.Counted{Name: name, Count: n})
		counts.Minutes[0].Outcomes[name], counts.Minutes[0].Failures = n, counts.Minutes[0].Failures+n
	}
	chart := outcomeChart(&chartRanges[0], counts)
	require.Equal(t, []series{{"Delivered", "accent"}, {"Busy", "bad-mark"}, {"TimedOut", "waiting-mark"}, {"NotFound", "series-violet"}, {"BadRequest", "series-blue"}, {"other failures", "calm-mark"}}, chart.Series)
	require.Len(t, chart.Rows, 1, "the last step is not over")
	require.Equal(t, []string{"50", "10", "9", "8", "7", "11"}, chart.Rows[0].Values)
	counts.Outcomes = counts.Outcomes[:6] // as many failures as colours: each has its own
	require.Len(t, outcomeChart(&chartRanges[0], counts).Series, 6)
	require.Equal(t, "SocketError", outcomeChart(&chartRanges[0], counts).Series[5].Name)
}

func TestLatencyChartHasGaps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	steps := []store.Minute{{At: at, Latency: store.Latency{100}}, {At: at.Add(time.Minute)}, {}}
	chart := latencyChart(&chartRanges[0], steps)
	require.Equal(t, []string{"2.5", "4.8"}, chart.Rows[0].Values)
	require.Equal(t, []string{"", ""}, chart.Rows[1].Values, "nothing was measured, which is not 0 ms")
	require.Equal(t, "09:00", chart.Rows[0].Label)
}

func TestRangeIsOneOfThem(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": "1h", "1h": "1h", "24h": "24h", "7d": "7d"} {
		q := &params{values: url.Values{"range": {value}}}
		require.Equal(t, want, rangeOf(q).Name)
		require.NoError(t, q.err)
	}
	q := &params{values: url.Values{"range": {"8d"}}}
	require.Equal(t, "1h", rangeOf(q).Name)
	require.ErrorIs(t, q.err, errQuery)
	for _, r := range chartRanges {
		require.Zero(t, r.Span%r.Step, r.Name)
		require.NotEmpty(t, r.step())
	}
}
