package publish

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy/filter"
)

// routingCatalogue has one topic with event subscriptions of the ids given, in this order.
func routingCatalogue(ids ...int64) *catalog.Snapshot { return catalogueOf(routingSubs(ids...)) }

func catalogueOf(subs []*catalog.Subscription) *catalog.Snapshot {
	return catalog.NewSnapshot(0, nil, subs, nil)
}

func routingSubs(ids ...int64) (subs []*catalog.Subscription) {
	for _, id := range ids {
		subs = append(subs, &catalog.Subscription{ID: id, TopicID: 1})
	}
	return subs
}

// aRoute is a route with events of the types given.
func aRoute(id int64, types ...string) *routing {
	r := &routing{ID: id, TopicID: 1, Total: len(types)}
	for _, kind := range types {
		r.events = append(r.events, catalog.StoredEvent{Event: event.Event{Type: kind}, PublishedAt: time.Unix(1000, 0)})
	}
	return r
}

// told writes deliveries as route.event→event subscription.
func told(owed []routedDelivery) (list []string) {
	for _, d := range owed {
		list = append(list, fmt.Sprintf("%d.%d→%d", d.route.ID, d.event, d.sub.ID))
	}
	return list
}

func TestTakeMovesThePlaceBehindWhatItTook(t *testing.T) {
	t.Parallel()
	catalogue := routingCatalogue(7, 3, 5) // the order of changes, not of ids
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
		"behind one that is gone since": {limit: 1, after: 4, want: []string{"1.0→5"}, next: 0, wantPast: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := aRoute(1, "a", "a")
			r.After = row.after
			require.Equal(t, row.want, told(r.take(nil, catalogue, row.limit)))
			next, finished := r.place()
			require.Equal(t, row.next, next)
			require.Equal(t, row.finished, finished)
			if row.limit > 0 {
				require.Equal(t, row.wantPast, r.After)
			}
		})
	}
}

func TestTakeAsksTheFilterAndTheAgeOfTheEventSubscription(t *testing.T) {
	t.Parallel()
	subs := routingSubs(1, 2, 3)
	catalogue := catalogueOf(subs)
	subs[0].Filter = filter.Filter{IncludedEventTypes: []string{"a"}}
	subs[1].CreatedAt = time.Unix(1000, 0) // in the same moment: it may have been counted
	subs[2].CreatedAt = time.Unix(1001, 0)
	r := aRoute(1, "a", "b")
	require.Equal(t, []string{"1.0→1", "1.0→2", "1.1→2"}, told(r.take(nil, catalogue, 99)))
	gone := aRoute(1, "a")
	gone.events[0] = catalog.StoredEvent{}
	require.Empty(t, gone.take(nil, routingCatalogue(1), 99), "an event that is gone is owed to nobody")
}

func TestEventsThatAreLeftForALaterStep(t *testing.T) {
	t.Parallel()
	r := aRoute(1, "a", "a")
	r.Total = 5
	require.Len(t, r.take(nil, routingCatalogue(1), 99), 2)
	next, finished := r.place()
	require.Equal(t, 2, next)
	require.False(t, finished)
}

func TestRoutesShareAStep(t *testing.T) {
	t.Parallel()
	catalogue := routingCatalogue(1, 2)
	large, small, none := aRoute(1, "a", "a", "a"), aRoute(2, "a"), aRoute(3)
	require.Equal(t, []string{"1.0→1", "2.0→1", "1.0→2"}, told(cutRoutes([]*routing{large, small, none}, catalogue, 3)))
	require.Equal(t, []string{"1.1→1", "1.1→2", "2.0→2", "1.2→1", "1.2→2"},
		told(cutRoutes([]*routing{large, small}, catalogue, 5)))
}
