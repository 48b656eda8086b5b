package bench

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/docs"
)

// A small run asks every question, and there is an answer to each but those about what a small one does not have.
func TestRunQuestions(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	report, err := RunQuestions(t.Context(), QuestionsOptions{Deliveries: leastDeliveries, Rounds: 2}, &log)
	require.NoError(t, err, log.String())
	require.InDelta(t, leastDeliveries, report.Deliveries, 100)
	require.InDelta(t, leastDeliveries/20, report.Owed, leastDeliveries/200)
	require.InDelta(t, leastDeliveries/10, report.DeadLetters, leastDeliveries/100)
	require.Greater(t, report.Attempts, report.Deliveries-report.Owed)
	require.Positive(t, report.DatabaseBytes)
	require.Len(t, report.Questions, len(docs.Questions()))
	for i, q := range docs.Questions() {
		got := report.Questions[i]
		require.Equal(t, q.Name, got.Name)
		require.Positive(t, got.MedianMs, q.Name)
		require.GreaterOrEqual(t, got.MaxMs, got.MedianMs, q.Name)
		if q.Name != "interrupted" { // one delivery in 100,003
			require.Positive(t, got.Rows, q.Name)
		}
		require.Contains(t, report.String(), q.Title)
	}
	_, err = json.Marshal(report)
	require.NoError(t, err)
	require.Contains(t, log.String(), "deadletters: asking 20 questions 3 times")
}

// What is counted from the rows says what the rows say; the questions are asked of both.
func TestFillWeekIsConsistent(t *testing.T) {
	t.Parallel()
	a := &filled{deliveries: leastDeliveries, log: io.Discard}
	require.NoError(t, a.open(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.close()) })
	pool := a.pool
	require.NoError(t, FillWeek(t.Context(), pool, leastDeliveries, io.Discard))
	for what, query := range map[string]string{
		"backlogs": `SELECT count(*) FROM (SELECT subscription_id, count(*) AS n FROM postrider_internal.deliveries
			    GROUP BY 1) d FULL JOIN postrider.backlogs b USING (subscription_id) WHERE n IS DISTINCT FROM owed_deliveries`,
		"counts": `SELECT count(*) FROM (SELECT state, count(*) AS n FROM postrider.deliveries WHERE state <> 'pending'
			    GROUP BY 1) d
			FULL JOIN (SELECT kind AS state, sum(count) AS n FROM postrider.delivery_counts
			    WHERE kind NOT IN ('owed', 'published', 'attempt') GROUP BY 1) c USING (state) WHERE d.n IS DISTINCT FROM c.n`,
		"dead letters": `SELECT count(*) FROM postrider.deliveries d FULL JOIN postrider.dead_letters l USING (dead_letter_id)
			WHERE (d.state = 'dead_lettered') IS DISTINCT FROM (l.dead_letter_id IS NOT NULL)
			    AND coalesce(d.state, '') NOT IN ('pending', 'delivered', 'dropped', 'canceled')`,
		"sums": `SELECT count(*) FROM (SELECT kind, detail, sum(count) AS n FROM postrider_internal.rollups GROUP BY 1, 2) r
			FULL JOIN (SELECT kind, detail, sum(count) AS n FROM postrider_internal.rollup_sums WHERE span = 1 GROUP BY 1, 2) s
			USING (kind, detail) WHERE r.n IS DISTINCT FROM s.n`,
		"events": `SELECT count(*) FROM postrider.deliveries WHERE event_id IS NULL`,
	} {
		var wrong int
		require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&wrong), what)
		require.Zero(t, wrong, what)
	}
	require.ErrorContains(t, FillWeek(t.Context(), pool, leastDeliveries, io.Discard), "the database has topics already")
}

func TestEnoughRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, enoughRoom(dir, 1))
	if _, known := freeBytes(dir); !known {
		t.Skip("this system does not tell how much room there is")
	}
	require.ErrorContains(t, enoughRoom(dir, math.MaxInt64), "are free: ask for fewer (--deliveries), or set TMPDIR")
	require.NoError(t, enoughRoom(dir+"/nothing", math.MaxInt64), "where nobody knows, nobody refuses")
}
