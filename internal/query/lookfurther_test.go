package query_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/internal/testnode"
)

// All read the same week, which takes longer to create than to read.
func TestReadsOfAWeek(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	require.NoError(t, testnode.FillWeek(t.Context(), tn.Pool, planDeliveries))
	for _, test := range []struct { //nolint:paralleltest // in this order
		name string
		run  func(*testing.T, *testnode.Node)
	}{
		{"questions", testQuestionsReadLittle},
		{"compiled questions", testQuestionsAreNotCompiled},
		{"counts", testCountsOfAWeek},
		{"deliveries of a time", testDeliveriesOfATime},
		{"a look goes on where it ended", testALookGoesOnWhereItEnded}, // deletes a row in the end
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tn) })
	}
}

// What testnode.FillWeek counts is what its rows say.
func testCountsOfAWeek(t *testing.T, tn *testnode.Node) {
	for what, query := range map[string]string{
		"backlogs": `SELECT count(*) FROM (SELECT subscription_id, count(*) AS n FROM postrider_internal.deliveries
			    GROUP BY 1) d FULL JOIN postrider.backlogs b USING (subscription_id)
			    WHERE n IS DISTINCT FROM pending_deliveries`,
		"counts": `SELECT count(*) FROM (SELECT state, count(*) AS n FROM postrider.deliveries WHERE state <> 'pending'
			    GROUP BY 1) d
			FULL JOIN (SELECT kind AS state, sum(count) AS n FROM postrider.delivery_counts
			    WHERE kind NOT IN ('matched', 'published', 'attempt') GROUP BY 1) c USING (state)
			    WHERE d.n IS DISTINCT FROM c.n`,
		"dead letters": `SELECT count(*) FROM postrider.deliveries d FULL JOIN postrider.dead_letters l USING (dead_letter_id)
			WHERE (d.state = 'dead_lettered') IS DISTINCT FROM (l.dead_letter_id IS NOT NULL)
			    AND coalesce(d.state, '') NOT IN ('pending', 'delivered', 'dropped', 'canceled')`,
		"sums": `SELECT count(*) FROM (SELECT kind, detail, sum(count) AS n FROM postrider_internal.rollups GROUP BY 1, 2) r
			FULL JOIN (SELECT kind, detail, sum(count) AS n FROM postrider_internal.rollup_sums WHERE span = 1 GROUP BY 1, 2) s
			USING (kind, detail) WHERE r.n IS DISTINCT FROM s.n`,
		"events": `SELECT count(*) FROM postrider.deliveries WHERE event_id IS NULL`,
	} {
		require.Zero(t, tn.Count(t, query), what)
	}
	require.ErrorContains(t, testnode.FillWeek(t.Context(), tn.Pool, planDeliveries), "the database has topics already")
}

// What no index knows is looked for in steps of 20,000 rows; they come to the end of the list, and see each row once.
func testALookGoesOnWhereItEnded(t *testing.T, tn *testnode.Node) {
	deliveries := func(f query.DeliveryFilter) (found, looks int) {
		last := int64(1 << 60)
		turn := query.Turn[query.DeliveryPlace]{Limit: 50}
		for {
			page, err := tn.System.Reader.ReadDeliveries(t.Context(), f, turn)
			require.NoError(t, err)
			for _, line := range page.Rows {
				require.Less(t, line.DeliveryID, last)
				last = line.DeliveryID
			}
			found, looks = found+len(page.Rows), looks+1
			switch {
			case page.SearchedTo != nil:
				require.False(t, page.Older)
				turn.Before = page.SearchedTo
			case page.Older:
				turn.Before = &query.DeliveryPlace{DeliveryID: last}
			default:
				return found, looks
			}
		}
	}
	found, looks := deliveries(query.DeliveryFilter{Outcome: "TimedOut"})
	require.Zero(t, found)
	require.GreaterOrEqual(t, looks, 3)
	found, _ = deliveries(query.DeliveryFilter{State: "dropped"})
	require.Equal(t, tn.Ended(t, "state = 'dropped'"), found)
	found, _ = deliveries(query.DeliveryFilter{Topic: "orders", State: "canceled"})
	require.Equal(t,
		tn.Ended(t, "state = 'canceled' AND topic_id = 1"),
		found)
	found, looks = deliveries(query.DeliveryFilter{State: "pending"})
	require.Equal(t, tn.Pending(t, ""), found)
	require.Equal(t, (found+49)/50, looks, "an index knows them")

	turn, total := query.Turn[uuid.UUID]{Limit: 50}, 0
	for {
		page, err := tn.System.Reader.ReadEvents(t.Context(), query.EventFilter{Topic: "vouchers"}, turn)
		require.NoError(t, err)
		total += len(page.Rows)
		if !page.Older && page.SearchedTo == nil {
			break
		}
		if turn.Before = page.SearchedTo; page.Older {
			turn.Before = &page.Rows[len(page.Rows)-1].SystemID
		}
	}
	require.Equal(t, tn.Events(t, "topic_id = 10"), total)
}
