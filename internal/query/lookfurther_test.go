package query_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/internal/testnode"
)

// All read the same days, which take longer to create than to read.
func TestReadsOfDays(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	require.NoError(t, testnode.FillDays(t.Context(), tn.Pool, planDays, planDeliveries))
	for _, test := range []struct { //nolint:paralleltest // in this order
		name string
		run  func(*testing.T, *testnode.Node)
	}{
		{"questions", testQuestionsReadLittle},
		{"compiled questions", testQuestionsAreNotCompiled},
		{"deliveries of a time", testDeliveriesOfATime},
		{"a look goes on where it ended", testALookGoesOnWhereItEnded}, // deletes a row in the end
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tn) })
	}
}

// What no index knows is looked for in steps of 20,000 rows; they come to the end of the list, and see each row once.
func testALookGoesOnWhereItEnded(t *testing.T, tn *testnode.Node) {
	deliveries := func(f query.DeliveryFilter) (found, looks int) {
		places, looks := walkDeliveries(t, tn, 50, f)
		for i := 1; i < len(places); i++ {
			require.Less(t, places[i].DeliveryID, places[i-1].DeliveryID)
		}
		return len(places), looks
	}
	found, looks := deliveries(query.DeliveryFilter{Outcome: "TimedOut"})
	require.Zero(t, found)
	require.GreaterOrEqual(t, looks, 3)
	found, _ = deliveries(query.DeliveryFilter{State: "dropped"})
	require.Equal(t, tn.Ended(t, "state = 'dropped'"), found)
	found, _ = deliveries(query.DeliveryFilter{Topic: "orders", State: "canceled"})
	require.Equal(t, tn.Ended(t, "state = 'canceled' AND topic_id = 1"), found)
	found, looks = deliveries(query.DeliveryFilter{State: "pending"})
	require.Equal(t, tn.Pending(t, ""), found)
	require.Equal(t, (found+49)/50, looks, "an index knows them")

	events, _ := walk(t, 50, func(l query.EventLine) uuid.UUID { return l.SystemID },
		func(turn query.Turn[uuid.UUID]) (query.Page[query.EventLine], *uuid.UUID) {
			page, err := tn.System.Reader.ReadEvents(t.Context(), query.EventFilter{Topic: "vouchers"}, turn)
			require.NoError(t, err)
			return page.Page, page.SearchedTo
		})
	require.Len(t, events, tn.Events(t, "topic_id = 10"))
}
