package display

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

func TestOutcomeChartGroupsRareFailures(t *testing.T) {
	t.Parallel()
	names := []string{"Busy", "TimedOut", "NotFound", "BadRequest", "SocketError", "Forbidden"}
	counts := &query.Counts{
		Outcomes: []query.Counted{{Name: "Delivered", Count: 50}},
		Minutes:  []query.Minute{{Outcomes: map[string]int64{"Delivered": 50}}, {}},
	}
	for i, name := range names {
		n := int64(10 - i)
		counts.Outcomes = append(counts.Outcomes, query.Counted{Name: name, Count: n})
		counts.Minutes[0].Outcomes[name], counts.Minutes[0].Failures = n, counts.Minutes[0].Failures+n
	}
	chart := OutcomeChart(&chartRanges[0], counts)
	require.Equal(t,
		[]series{
			{"Delivered", "accent"},
			{"Busy", "bad-mark"},
			{"TimedOut", "waiting-mark"},
			{"NotFound", "series-violet"},
			{"BadRequest", "series-blue"},
			{"other failures", "calm-mark"},
		}, chart.Series)
	require.Len(t, chart.Rows, 1, "the last step has not ended")
	require.Equal(t, []string{"50", "10", "9", "8", "7", "11"}, chart.Rows[0].Values)
	counts.Outcomes = counts.Outcomes[:6] // each failure has its color
	require.Len(t, OutcomeChart(&chartRanges[0], counts).Series, 6)
	require.Equal(t, "SocketError", OutcomeChart(&chartRanges[0], counts).Series[5].Name)
}

func TestLatencyChartHasGaps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	steps := []query.Minute{{At: at, Latency: query.Latency{100}}, {At: at.Add(time.Minute)}, {}}
	chart := LatencyChart(&chartRanges[0], steps)
	require.Equal(t, []string{"2.5", "4.8"}, chart.Rows[0].Values)
	require.Equal(t, []string{"", ""}, chart.Rows[1].Values, "no measurement is not 0 ms")
	require.Equal(t, "09:00", chart.Rows[0].Label)
}

func TestRangeOf(t *testing.T) {
	t.Parallel()
	q := filterWith("range", "8d")
	require.Equal(t, "1h", RangeOf(q).Name)
	require.ErrorIs(t, q.Err, ErrQuery)
	for _, r := range chartRanges {
		require.Equal(t, r.Name, RangeOf(filterWith("range", r.Name)).Name)
		require.Zero(t, r.Span%r.Step, r.Name)
		require.NotEmpty(t, r.Each)
	}
}

func TestPhasesOf(t *testing.T) {
	t.Parallel()
	phases := PhasesOf(query.AttemptLine{DurationMs: 50, DNSMs: new(5.0), ConnectMs: new(10.0), FirstByteMs: new(25.0)},
		100)
	require.Equal(t, []Phase{
		{"DNS", "phase-dns", "5.0 ms", "0.000%", "5.000%"},
		{"connect", "phase-connect", "10 ms", "5.000%", "10.000%"},
		{"first byte", "phase-wait", "25 ms", "15.000%", "25.000%"},
		{"response", "phase-read", "10 ms", "40.000%", "10.000%"},
	}, phases)
	require.Equal(t, []Phase{{"no response", "phase-none", "30.00 s", "0.000%", "100.000%"}},
		PhasesOf(query.AttemptLine{DurationMs: 30_000}, 30_000))
	require.Equal(t, []Phase{{"response", "phase-read", "5.0 ms", "0.000%", "100.000%"}},
		PhasesOf(query.AttemptLine{DurationMs: 5, Status: new(200)}, 5), "of a broker")
	require.Empty(t, PhasesOf(query.AttemptLine{}, 0))
}

func TestSparkShowsSingleFailure(t *testing.T) {
	t.Parallel()
	s := SparkOf([]int64{0, 10_000}, []int64{1, 0})
	require.Equal(t, []bar{{X: 0, GoodY: 20, Good: 0, BadY: 18, Bad: 2}, {X: 5, GoodY: 2, Good: 18, BadY: 2}}, s.Bars)
	require.Equal(t, "10,000 succeeded, 1 failed", s.Text)
}

func TestStorageGroups(t *testing.T) {
	t.Parallel()
	today := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	groups := StorageGroupsOf(&query.Storage{
		Today: today,
		Partitions: []query.Partition{
			{Parent: "delivery_attempts", Day: today.AddDate(0, 0, 1), Bytes: 1, Rows: -1},
			{Parent: "delivery_attempts", Day: today, Bytes: 10, Rows: 100},
			{Parent: "delivery_attempts", Day: today.AddDate(0, 0, -1), Bytes: 20, Rows: 200},
			{Parent: "delivery_history", Day: today, Bytes: 5, Rows: 7},
		},
		Tables: []query.TableSize{
			{Name: "river_job", Bytes: 3, Rows: -1}, {Name: "deliveries", Bytes: 2, Rows: 1}, {Name: "users", Bytes: 1},
		},
	}, map[string]int{"delivery_attempts": 2})
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	require.Equal(t, []string{"Deliveries", "Attempts", "Jobs", "Other"}, names)
	require.Equal(t, int64(7), groups[0].Bytes)
	require.Equal(t, int64(8), groups[0].Rows)
	attempts := groups[1]
	require.Equal(t, int64(31), attempts.Bytes)
	require.Equal(t, int64(300), attempts.Rows)
	require.Equal(t, 1, attempts.Partitioned[0].Ahead)
	require.Equal(t, today.AddDate(0, 0, -1), *attempts.Partitioned[0].Oldest)
	require.Equal(t, today.AddDate(0, 0, 2), attempts.Partitioned[0].Dropped)
}
