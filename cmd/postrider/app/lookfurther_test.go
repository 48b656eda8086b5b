package app_test

import (
	"io"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/bench"
	"postrider/query"
)

// Both read the same week, which takes longer to make than to read.
func TestListsOfAWeek(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, bench.FillWeek(t.Context(), b.pool, 60_000, io.Discard))
	//nolint:paralleltest // the other one deletes a row in the end
	t.Run("a look goes on where it ended", b.testALookGoesOnWhereItEnded)
	t.Run("deliveries of a time", b.testDeliveriesOfATime) //nolint:paralleltest // after the first
}

// What no index knows is looked for in steps of 20,000 rows; they come to the end of the list, and see each row once.
func (b *bundle) testALookGoesOnWhereItEnded(t *testing.T) {
	deliveries := func(f query.DeliveryFilter) (found, looks int) {
		last := int64(1 << 60)
		turn := query.Turn[query.DeliveryPlace]{Limit: 50}
		for {
			page, err := b.store.Reader.ReadDeliveries(t.Context(), f, turn)
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
	require.Equal(t, b.count(t, "SELECT count(*) FROM postrider_internal.delivery_history WHERE state = 'dropped'"), found)
	found, _ = deliveries(query.DeliveryFilter{Topic: "orders", State: "canceled"})
	require.Equal(t,
		b.count(t, "SELECT count(*) FROM postrider_internal.delivery_history WHERE state = 'canceled' AND topic_id = 1"),
		found)
	found, looks = deliveries(query.DeliveryFilter{State: "pending"})
	require.Equal(t, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"), found)
	require.Equal(t, (found+49)/50, looks, "an index knows them")

	turn, total := query.Turn[uuid.UUID]{Limit: 50}, 0
	for {
		page, err := b.store.Reader.ReadEvents(t.Context(), query.EventFilter{Topic: "vouchers"}, turn)
		require.NoError(t, err)
		total += len(page.Rows)
		if !page.Older && page.SearchedTo == nil {
			break
		}
		if turn.Before = page.SearchedTo; page.Older {
			turn.Before = &page.Rows[len(page.Rows)-1].SystemID
		}
	}
	require.Equal(t, b.count(t, "SELECT count(*) FROM postrider_internal.events WHERE topic_id = 10"), total)
}
