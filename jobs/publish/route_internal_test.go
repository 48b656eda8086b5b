package publish

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
)

// routingCatalog has one topic with event subscriptions of these ids, in this order.
func routingCatalog(ids ...int64) *catalog.Snapshot { return snapshotOf(routingSubs(ids...)) }

func snapshotOf(subs []*catalog.Subscription) *catalog.Snapshot {
	return catalog.NewSnapshot(0, nil, subs, nil)
}

func routingSubs(ids ...int64) (subs []*catalog.Subscription) {
	for _, id := range ids {
		subs = append(subs, &catalog.Subscription{ID: id, TopicID: 1})
	}
	return subs
}

// newRoute returns a route with events of these types.
func newRoute(id int64, types ...string) *routing {
	r := &routing{ID: id, TopicID: 1, Total: len(types)}
	for i, kind := range types {
		r.EventUUIDs = append(r.EventUUIDs, [16]byte{byte(i)})
		r.events = append(r.events, catalog.StoredEvent{Event: event.Event{Type: kind}, PublishedAt: time.Unix(1000, 0)})
	}
	return r
}

// format writes deliveries as route.event→event subscription.
func format(deliveries []newDelivery) (list []string) {
	for _, d := range deliveries {
		list = append(list, fmt.Sprintf("%d.%d→%d", d.route.ID, d.event[0], d.sub.ID))
	}
	return list
}

func TestTakeMovesThePosition(t *testing.T) {
	t.Parallel()
	snapshot := routingCatalog(7, 3, 5) // the order of changes, not of ids
	for name, row := range map[string]struct {
		limit    int
		after    int64
		want     []string
		next     int
		wantPast int64
		finished bool
	}{
		"nothing":                     {limit: 0, next: 0},
		"a part of the first event":   {limit: 2, want: []string{"1.0→3", "1.0→5"}, next: 0, wantPast: 5},
		"the first event":             {limit: 3, want: []string{"1.0→3", "1.0→5", "1.0→7"}, next: 1},
		"the rest of the first event": {limit: 2, after: 3, want: []string{"1.0→5", "1.0→7"}, next: 1},
		"into the second event":       {limit: 2, after: 5, want: []string{"1.0→7", "1.1→3"}, next: 1, wantPast: 3},
		"all": {
			limit: 6, want: []string{"1.0→3", "1.0→5", "1.0→7", "1.1→3", "1.1→5", "1.1→7"}, next: 2, finished: true,
		},
		"more than there is": {
			limit: 99, after: 7, want: []string{"1.1→3", "1.1→5", "1.1→7"}, next: 2, finished: true,
		},
		"after one that was deleted": {limit: 1, after: 4, want: []string{"1.0→5"}, next: 0, wantPast: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoute(1, "a", "a")
			r.After = row.after
			require.Equal(t, row.want, format(r.take(nil, snapshot, row.limit)))
			next, finished := r.position()
			require.Equal(t, row.next, next)
			require.Equal(t, row.finished, finished)
			if row.limit > 0 {
				require.Equal(t, row.wantPast, r.After)
			}
		})
	}
}

func TestTakeChecksFilterAndAgeOfTheEventSubscription(t *testing.T) {
	t.Parallel()
	subs := routingSubs(1, 2, 3)
	snapshot := snapshotOf(subs)
	subs[0].Filter = filter.Filter{IncludedEventTypes: []string{"a"}}
	subs[1].CreatedAt = time.Unix(1000, 0) // in the same moment: it may have been counted
	subs[2].CreatedAt = time.Unix(1001, 0)
	r := newRoute(1, "a", "b")
	require.Equal(t, []string{"1.0→1", "1.0→2", "1.1→2"}, format(r.take(nil, snapshot, 99)))
	gone := newRoute(1, "a")
	gone.events[0] = catalog.StoredEvent{}
	require.Empty(t, gone.take(nil, routingCatalog(1), 99), "an event whose row is gone has no deliveries")
}

func TestTakeLeavesEventsForALaterStep(t *testing.T) {
	t.Parallel()
	r := newRoute(1, "a", "a")
	r.Total = 5
	require.Len(t, r.take(nil, routingCatalog(1), 99), 2)
	next, finished := r.position()
	require.Equal(t, 2, next)
	require.False(t, finished)
}

func TestRoutesShareAStep(t *testing.T) {
	t.Parallel()
	snapshot := routingCatalog(1, 2)
	large, small, none := newRoute(1, "a", "a", "a"), newRoute(2, "a"), newRoute(3)
	require.Equal(t, []string{"1.0→1", "2.0→1", "1.0→2"}, format(cutRoutes([]*routing{large, small, none}, snapshot, 3)))
	require.Equal(t, []string{"1.1→1", "1.1→2", "2.0→2", "1.2→1", "1.2→2"},
		format(cutRoutes([]*routing{large, small}, snapshot, 5)))
}
