package query_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// Each list is read along its key, in both directions, with and without each filter: the queries are put together of
// parts.
func TestListsAreReadInBothDirections(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "parcels")
	tn.Subscribe(t, "orders", "billing", nil)
	tn.Subscribe(t, "orders", "stock", nil)
	tn.Publish(t, "orders", "e", 7)
	tn.Publish(t, "parcels", "p", 2)
	for name, f := range map[string]query.DeliveryFilter{
		"all": {}, "of a topic": {Topic: "orders"}, "of one event subscription": {Topic: "orders", Subscription: "billing"},
		"of its name alone": {Subscription: "stock"},
		"pending":           {State: "pending"}, "of an event": {Event: "e-3"}, "finished": {State: "delivered"},
		"on hold": {Hold: "paused"}, "of an outcome": {Outcome: "Busy"},
		"finished and on hold": {State: "delivered", Hold: "paused"},
	} {
		want := map[string]int{
			"all": 14, "of a topic": 14, "of one event subscription": 7, "of its name alone": 7, "pending": 14, "of an event": 2,
		}[name]
		places, _ := walkDeliveries(t, tn, 3, f)
		require.Len(t, places, want, name)
		for i := 1; i < want; i++ {
			require.Less(t, places[i].DeliveryID, places[i-1].DeliveryID, name)
		}
		if want <= 3 {
			continue
		}
		last := places[(want-1)/3*3] // the first row of the last page
		before, err := tn.System.Reader.ReadDeliveries(t.Context(), f,
			query.Turn[query.DeliveryPlace]{Limit: 3, After: &last})
		require.NoError(t, err, name)
		require.Len(t, before.Rows, 3, name)
		require.True(t, before.Older, name)
		require.Greater(t, before.Rows[2].DeliveryID, last.DeliveryID, name)
	}
}

func TestEventsAreFiltered(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "parcels")
	tn.Subscribe(t, "orders", "billing", nil)
	tn.Publish(t, "orders", "e", 3)
	tn.Publish(t, "parcels", "p", 2)
	hour := time.Hour
	past, future := time.Now().Add(-hour), time.Now().Add(hour)
	for name, row := range map[string]struct {
		f    query.EventFilter
		want int
	}{
		"all": {query.EventFilter{}, 5}, "of a topic": {query.EventFilter{Topic: "orders"}, 3},
		"unmatched": {query.EventFilter{Unmatched: true}, 2}, "by id": {query.EventFilter{Event: "p-1"}, 1},
		"by subject": {query.EventFilter{SubjectPrefix: "subject/e"}, 3}, "by type": {query.EventFilter{Type: "other"}, 0},
		"of the last hour": {query.EventFilter{From: &past, To: &future}, 5},
		"of the next":      {query.EventFilter{From: &future}, 0},
	} {
		page, err := tn.System.Reader.ReadEvents(t.Context(), row.f, query.Turn[uuid.UUID]{Limit: 50})
		require.NoError(t, err, name)
		require.Len(t, page.Rows, row.want, name)
	}
	_, err := tn.System.Reader.ReadEvent(t.Context(), uuid.New())
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestCountsHaveEveryMinute(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", nil)
	tn.Publish(t, "orders", "e", 4)
	tn.Topic(t, "quiet")
	overview, err := tn.System.Reader.ReadOverview(t.Context(), time.Hour, time.Minute)
	require.NoError(t, err)
	counts := overview.LastHour
	require.Len(t, counts.Minutes, 61)
	var published, matched int64
	for i, m := range counts.Minutes {
		published, matched = published+m.Published, matched+m.Matched
		if i > 0 {
			require.Equal(t, time.Minute, m.At.Sub(counts.Minutes[i-1].At))
		}
	}
	require.Equal(t, [2]int64{4, 4}, [2]int64{published, matched})
	quiet, err := tn.System.Reader.ReadTopicDetails(t.Context(), "quiet", time.Hour, 5*time.Minute)
	require.NoError(t, err)
	require.Len(t, quiet.Range.Minutes, 13)
	require.Zero(t, quiet.Range.Minutes[12].Published+quiet.Range.Minutes[11].Published)
}

func TestQuantileIsReadOffWithinItsBucket(t *testing.T) {
	t.Parallel()
	_, ok := new(query.Latency).Quantile(0.5)
	require.False(t, ok)
	l := query.Latency{0, 0, 10, 0, 90} // 10 of 10 to 25 ms, 90 of 50 to 100 ms
	half, ok := l.Quantile(0.5)
	require.True(t, ok)
	require.InDelta(t, 50+50*40.0/90, half, 1e-9)
	few, _ := l.Quantile(0.05)
	require.InDelta(t, 17.5, few, 1e-9)
	longest := query.Latency{13: 1}
	most, _ := longest.Quantile(0.95)
	require.Equal(t, 60000.0, most, "the last bucket has no end")
}

// The tail shows each new event once, and no event from before it began.
func TestTailShowsNewEventsOnce(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Publish(t, "orders", "old", 2)
	tn.Exec(t, "UPDATE postrider_internal.events SET published_at = published_at - interval '1 second'") // of two clocks
	tail := tn.System.Reader.NewTail(query.TailFilter{Topic: "orders"})
	tn.Publish(t, "orders", "new", 3)
	lines, err := tail.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, lines, 3)
	again, err := tail.Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, again)
	other, err := tn.System.Reader.NewTail(query.TailFilter{Topic: "none"}).Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, other)
}
