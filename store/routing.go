package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"postrider/event"

	"github.com/jackc/pgx/v5"
)

// routing is a route on its way: its place moves on as deliveries are taken from it.
type routing struct {
	ID, JobID, TopicID int64
	EventDay           time.Time
	Total              int        // events of the route
	Next               int        // its place: so many events are done,
	After              int64      // and of the one that follows the event subscriptions up to this one
	EventUUIDs         [][16]byte // of the events from Next on, a part of them
	events             []routedEvent
	taken              int // events done in this step
}

// routedEvent is what the filters ask for. Its body is not read.
type routedEvent struct {
	event.Event
	publishedAt time.Time // zero: the event is not there any more
	bytes       int       // of its body
}

// routedDelivery is one delivery that a step makes.
type routedDelivery struct {
	route *routing
	event int // in route.events
	sub   *Subscription
}

// readRoutes reads the routes of a group of jobs, each with the events from its place on.
func readRoutes(ctx context.Context, tx pgx.Tx, group []*routeRequest, events int) ([]*routing, error) {
	const query = `SELECT id, job_id, topic_id, event_day, cardinality(event_uuids) AS total, next_event AS next, after_subscription AS after,
		event_uuids[next_event + 1 : next_event + $2] AS event_uuids FROM postrider_internal.routes WHERE job_id = ANY ($1::bigint[]) ORDER BY id`
	jobs := make([]int64, len(group))
	for i, req := range group {
		jobs[i] = req.jobID
	}
	rows, err := tx.Query(ctx, query, jobs, events)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	routes, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[routing])
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	return routes, readRoutedEvents(ctx, tx, routes)
}

// readRoutedEvents reads the events of routes. Days and ids are lists and not a join: with a join the planner may read whole
// partitions.
func readRoutedEvents(ctx context.Context, tx pgx.Tx, routes []*routing) error {
	const query = `SELECT id, event_type, subject, published_at, octet_length(body) FROM postrider_internal.events WHERE day = ANY ($1::date[]) AND id = ANY ($2::uuid[])`
	var days []time.Time
	var ids [][16]byte
	for _, r := range routes {
		if !slices.ContainsFunc(days, r.EventDay.Equal) {
			days = append(days, r.EventDay)
		}
		ids = append(ids, r.EventUUIDs...)
	}
	rows, err := tx.Query(ctx, query, days, ids)
	if err != nil {
		return fmt.Errorf("read routed events: %w", err)
	}
	found := make(map[[16]byte]routedEvent, len(ids))
	var id [16]byte
	var e routedEvent
	if _, err := pgx.ForEachRow(rows, []any{&id, &e.Type, &e.Subject, &e.publishedAt, &e.bytes}, func() error { found[id] = e; return nil }); err != nil {
		return fmt.Errorf("read routed events: %w", err)
	}
	for _, r := range routes {
		for _, id := range r.EventUUIDs {
			r.events = append(r.events, found[id])
		}
	}
	return nil
}

// cutRoutes takes up to limit deliveries from the routes: an equal share from each, so that a small route does not wait for a
// large one, and what is left of that from the first that has more.
func cutRoutes(routes []*routing, c *Catalogue, limit int) []routedDelivery {
	var owed []routedDelivery
	share := limit / len(routes)
	for _, r := range routes {
		owed = r.take(owed, c, share)
	}
	for _, r := range routes {
		owed = r.take(owed, c, limit-len(owed))
	}
	return owed
}

// take appends up to limit deliveries and moves the route's place behind them.
func (r *routing) take(owed []routedDelivery, c *Catalogue, limit int) []routedDelivery {
	for ; r.taken < len(r.events); r.taken, r.After = r.taken+1, 0 {
		for _, sub := range r.wanting(c) {
			if limit == 0 {
				return owed
			}
			owed = append(owed, routedDelivery{route: r, event: r.taken, sub: sub})
			r.After = sub.ID
			limit--
		}
	}
	return owed
}

// wanting lists who is still to get the event that the route has come to, by id: the catalogue's order is not the same after
// a change. Who came after the event was accepted does not get it.
func (r *routing) wanting(c *Catalogue) []*Subscription {
	e := &r.events[r.taken]
	if e.publishedAt.IsZero() {
		return nil
	}
	wanting := slices.DeleteFunc(c.Wanting(r.TopicID, &e.Event), func(s *Subscription) bool {
		return s.ID <= r.After || s.CreatedAt.After(e.publishedAt)
	})
	slices.SortFunc(wanting, func(a, b *Subscription) int { return cmp.Compare(a.ID, b.ID) })
	return wanting
}

func (r *routing) place() (next int, finished bool) {
	next = r.Next + r.taken
	return next, next >= r.Total
}

func subscriptionsOf(owed []routedDelivery) iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for _, d := range owed {
			if !yield(d.sub) {
				return
			}
		}
	}
}

// fanOutColumns turns one step into the columns of fanOutStatement.
func fanOutColumns(c *Catalogue, routes []*routing, owed []routedDelivery, admitted admissions) []any {
	var jobs, ids, after []int64
	var finished []bool
	var next []int
	for _, r := range routes {
		n, end := r.place()
		jobs, ids, finished, next, after = append(jobs, r.JobID), append(ids, r.ID), append(finished, end), append(next, n), append(after, r.After)
	}
	d, lanes, met := newOwedColumns(len(owed)), &laneColumns{}, map[int64]bool{}
	owners, days, since := make([]int64, len(owed)), make([]time.Time, len(owed)), make([]time.Time, len(owed))
	for i, o := range owed {
		owners[i], days[i], since[i] = o.route.ID, o.route.EventDay, o.route.events[o.event].publishedAt
		d.add(o.route.EventUUIDs[o.event], o.sub, admitted.take(o.sub.ID), o.route.events[o.event].bytes)
		if !met[o.sub.ID] {
			met[o.sub.ID] = true
			lanes.add(o.sub.TopicID, o.sub.ID, 0, c.restKey(o.sub), o.sub.Batching())
		}
	}
	return []any{
		c.Version, jobs, ids, finished, next, after, owners, days, since, d.events, d.topics, d.subs, d.admitted, d.bytes,
		lanes.subscriptions, lanes.restKeys, lanes.batching,
	}
}
