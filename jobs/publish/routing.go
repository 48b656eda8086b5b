package publish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

var readRoutesStatement = sqlFile("readroutes.sql")

// routing is a route on its way: its place moves on as deliveries are taken from it.
type routing struct {
	ID, JobID, TopicID int64
	EventDay           time.Time
	Partition          bool       // the day has its table: somebody may have removed it by hand
	Total              int        // events of the route
	Next               int        // its place: so many events are done,
	After              int64      // and of the one that follows the event subscriptions up to this one
	EventUUIDs         [][16]byte // of the events from Next on, a part of them
	BySQL              bool
	events             []catalog.StoredEvent
	taken              int            // events done in this step
	matched            []matchedEvent // if it is still to be written down who wants them
}

// routedDelivery is one delivery that a step makes.
type routedDelivery struct {
	route *routing
	event int // in route.events
	sub   *catalog.Subscription
}

// readRoutes reads the routes of a group of jobs, each with the events from its place on, as the catalogue's filters
// need them.
func (p *Publisher) readRoutes(
	ctx context.Context, tx pgx.Tx, c *catalog.Snapshot, group []*routeRequest, events int,
) ([]*routing, error) {
	jobs := make([]int64, len(group))
	for i, req := range group {
		jobs[i] = req.jobID
	}
	rows, err := tx.Query(ctx, readRoutesStatement, jobs, events)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	routes, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[routing])
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	if len(routes) == 0 {
		return nil, nil
	}
	return routes, p.readEvents(ctx, tx, c, routes)
}

// readEvents reads the events of routes: with their bodies only if an advanced filter may need them.
func (p *Publisher) readEvents(ctx context.Context, tx pgx.Tx, c *catalog.Snapshot, routes []*routing) error {
	var days []time.Time
	var ids [][16]byte
	for _, route := range routes {
		if !slices.ContainsFunc(days, route.EventDay.Equal) {
			days = append(days, route.EventDay)
		}
		ids = append(ids, route.EventUUIDs...)
	}
	var found catalog.StoredEvents
	var err error
	if slices.ContainsFunc(routes, func(r *routing) bool { return c.HasAdvancedFilters(r.TopicID) }) {
		found, err = catalog.ReadStoredBodies(ctx, tx, eventsOf(routes), days, ids, p.stepBytes)
	} else {
		found, err = catalog.ReadStoredEvents(ctx, tx, eventsOf(routes), days, ids)
	}
	for _, route := range routes {
		route.events = found.Read(route.EventUUIDs)
	}
	return err
}

// eventsOf is the table of the routes' events: nearly always one day's partition.
func eventsOf(routes []*routing) string {
	day := routes[0].EventDay
	if slices.ContainsFunc(routes, func(r *routing) bool { return !r.EventDay.Equal(day) || !r.Partition }) {
		return catalog.AllEvents
	}
	return catalog.EventsOf(day)
}

// cutRoutes takes up to limit deliveries from the routes: an equal share from each, so that a small route does not wait
// for a large one, and what is left of that from the first that has more.
func cutRoutes(routes []*routing, c *catalog.Snapshot, limit int) []routedDelivery {
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
func (r *routing) take(owed []routedDelivery, c *catalog.Snapshot, limit int) []routedDelivery {
	for ; r.taken < len(r.events); r.taken, r.After = r.taken+1, 0 {
		wanting := r.wanting(c)
		if len(wanting) == 0 && r.After == 0 {
			r.match(r.taken, 0)
		}
		for _, sub := range wanting {
			if limit == 0 {
				return owed
			}
			r.match(r.taken, 1)
			owed = append(owed, routedDelivery{route: r, event: r.taken, sub: sub})
			r.After = sub.ID
			limit--
		}
	}
	return owed
}

// missing counts the events whose rows are gone.
func (r *routing) missing() (n int) {
	for i := range r.events {
		if r.events[i].PublishedAt.IsZero() {
			n++
		}
	}
	return n
}

// wanting lists who is still to get the event that the route has come to, by id: the catalogue's order is not the same
// after a change. Who came after the event was accepted does not get it.
func (r *routing) wanting(c *catalog.Snapshot) []*catalog.Subscription {
	e := &r.events[r.taken]
	if e.PublishedAt.IsZero() { // its row is gone, though no day that owes anything is ever removed
		return nil
	}
	wanting := slices.DeleteFunc(c.Matching(r.TopicID, &e.Event), func(s *catalog.Subscription) bool {
		return s.ID <= r.After || s.CreatedAt.After(e.PublishedAt)
	})
	slices.SortFunc(wanting, func(a, b *catalog.Subscription) int { return cmp.Compare(a.ID, b.ID) })
	return wanting
}

func (r *routing) place() (next int, finished bool) {
	next = r.Next + r.taken
	return next, next >= r.Total
}

// routedTo lists the event subscriptions of deliveries. They are counted when they are created.
func routedTo(c *catalog.Snapshot, owed []routedDelivery) (list []destination) {
	met := map[int64]bool{}
	for _, o := range owed {
		if !met[o.sub.ID] {
			met[o.sub.ID] = true
			list = append(list, destinationOf(c, o.sub, 0))
		}
	}
	return list
}

func routedDeliveries(owed []routedDelivery, admitted queue.Admissions) []newDelivery {
	return postgres.Column(owed, func(o routedDelivery) newDelivery {
		return newDelivery{
			event: o.route.EventUUIDs[o.event], bytes: o.route.events[o.event].Bytes, sub: o.sub,
			admitted: admitted.Take(o.sub.ID), route: o.route, since: o.route.events[o.event].PublishedAt,
		}
	})
}

func (r *routing) match(event, count int) {
	if !r.BySQL {
		return // counted when it was published
	}
	if last := len(r.matched) - 1; last >= 0 && r.matched[last].event == event {
		r.matched[last].count += count
		return
	}
	r.matched = append(r.matched, matchedEvent{r, event, count})
}

// matchedEvents are the events of a step whose counts are to be stored.
func matchedEvents(routes []*routing) (list []matchedEvent) {
	for _, r := range routes {
		list = append(list, r.matched...)
	}
	return list
}
