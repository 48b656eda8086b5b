package publish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

const (
	// routeThreshold: 10,000 deliveries take a transaction about half a second. Neither this publisher nor the groups of
	// other publishers should wait longer.
	routeThreshold = 10_000
	// routeStep is how many deliveries one transaction creates for a group of routes.
	routeStep = 10_000
	// routeBytes bounds the bodies that a step reads for advanced filters. It always reads the first body.
	routeBytes = 32 << 20
	// routeGroup leaves each route of a full group 20 deliveries a step.
	routeGroup = 500

	// The pauses after a step that failed.
	routeMinPause = 50 * time.Millisecond
	routeMaxPause = 2 * time.Second
)

// routeRequest is the job of a route that waits for its step.
type routeRequest struct {
	jobID int64
	// failed is set before done is closed.
	failed error
	done   chan struct{}
}

// Route makes the step of a route that this job stands for, up to 10,000 deliveries. It returns after the commit, or
// when ctx ends: then the step may still be committed. A job whose row is gone creates nothing, which is no error.
// ErrPoison: PostgreSQL rejects this step.
func (p *Publisher) Route(ctx context.Context, jobID int64) error {
	req := &routeRequest{jobID: jobID, done: make(chan struct{})}
	p.routes.Add(req)
	select {
	case <-req.done:
		return req.failed
	case <-ctx.Done():
		return fmt.Errorf("route events: %w", ctx.Err())
	}
}

// flushRoutes repeats until the step is committed or the process stops. Repeating is safe: a job that is gone creates
// nothing.
func (p *Publisher) flushRoutes(ctx context.Context, group []*routeRequest) {
	slices.SortFunc(group, func(a, b *routeRequest) int { return cmp.Compare(a.jobID, b.jobID) })
	reject := func(req *routeRequest, err error) error {
		req.failed = fmt.Errorf("%w: %w", postgres.ErrPoison, err)
		return nil
	}
	pause := routeMinPause
	for try := 0; ; try++ {
		step := func(part []*routeRequest) error { return p.stepRoutes(ctx, part, try >= p.optimistic) }
		err := postgres.Isolate(group, step, reject)
		if err == nil {
			break
		}
		if ctx.Err() == nil && p.again(ctx, err) {
			continue
		}
		p.Log.Warn("events could not be routed, trying again", "routes", len(group), "in", pause, "error", err)
		if !postgres.WaitJittered(ctx, pause) {
			return
		}
		pause = min(pause*2, routeMaxPause)
	}
	for _, req := range group {
		close(req.done)
	}
}

// PointRoute is the failpoint before the commit of one step of a route job.
const PointRoute = "route"

// stepRoutes makes one step of a group. errStale: nothing was created. If filtered, it reads the catalog in its
// snapshot, which is never stale.
func (p *Publisher) stepRoutes(ctx context.Context, group []*routeRequest, filtered bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	options := pgx.TxOptions{}
	if filtered {
		options.IsoLevel = pgx.RepeatableRead
	}
	var admitted queue.Admissions
	var to []destination
	var unfinished int
	err := pgx.BeginTxFunc(ctx, p.DB, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, p.DB.Keeping(postgres.KeepPlan)); err != nil {
			return fmt.Errorf("keep plans: %w", err)
		}
		snapshot := p.Cache.Snapshot()
		if filtered {
			var err error
			if snapshot, err = p.Cache.ReadIn(ctx, tx, snapshot); err != nil {
				return fmt.Errorf("read the catalog: %w", err)
			}
		}
		routes, err := p.readRoutes(ctx, tx, snapshot, group)
		if err != nil || len(routes) == 0 {
			return err
		}
		for _, r := range routes {
			if n := r.missing(); n > 0 {
				p.Log.Error("events were erased, or their partition dropped, before their deliveries were created; "+
					"publish them again if they are needed",
					"topic_id", r.TopicID, "day", r.EventDay.Format(time.DateOnly), "events", n)
			}
		}
		deliveries := cutRoutes(routes, snapshot, p.stepLimit)
		met := map[int64]bool{}
		for _, d := range deliveries {
			if !met[d.sub.ID] {
				met[d.sub.ID] = true
				to = append(to, destinationOf(snapshot, d.sub, 0)) // the statement counts its deliveries
			}
		}
		admitted = p.capacity(to)
		for i := range deliveries {
			deliveries[i].admitted = deliveries[i].sub.Pulled() || admitted.Take(deliveries[i].sub.ID)
		}
		var matched []matchedEvent
		for _, r := range routes {
			matched = append(matched, r.matched...)
		}
		args := destinationColumns.Append([]any{snapshot.Version, p.Node}, to)
		args = matchedColumns.Append(routedColumns.Append(routeColumns.Append(args, routes), deliveries), matched)
		statement := strings.Replace(fanOutStatement, catalog.AllEvents, eventsOf(routes), 1)
		var found int64
		err = tx.QueryRow(ctx, statement, args...).Scan(&found, &unfinished)
		p.Failpoint.Reach(PointRoute)
		if err != nil {
			return err
		}
		if found != snapshot.Version {
			return errStale
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("route events: %w", err)
	}
	p.Traffic.Add(admitted)
	p.Notifier.RequestDeliveries()
	p.arrived(to)
	if unfinished > 0 {
		p.Notifier.RequestFetch(queue.RouteQueue)
	}
	return nil
}

// routing is a route whose position advances as deliveries are taken from it.
type routing struct {
	ID, JobID, TopicID int64
	EventDay           time.Time
	Partition          bool       // the day has its partition
	Total              int        // events of the route
	Next               int        // the position: so many events are finished,
	After              int64      // and of the next one the event subscriptions up to this id
	EventUUIDs         [][16]byte // some of the events from Next on
	BySQL              bool
	events             []catalog.StoredEvent
	taken              int            // events finished in this step
	matched            []matchedEvent // how many event subscriptions match, if that is not stored yet
}

// readRoutes reads the routes of a group of jobs, with events from their positions on. It reads the bodies only if an
// advanced filter may need them.
func (p *Publisher) readRoutes(
	ctx context.Context, tx pgx.Tx, c *catalog.Snapshot, group []*routeRequest,
) ([]*routing, error) {
	jobs := postgres.Column(group, func(req *routeRequest) int64 { return req.jobID })
	rows, err := tx.Query(ctx, readRoutesStatement, jobs, max(p.stepLimit/len(group), 1))
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
	var days []time.Time
	var ids [][16]byte
	for _, r := range routes {
		if !slices.ContainsFunc(days, r.EventDay.Equal) {
			days = append(days, r.EventDay)
		}
		ids = append(ids, r.EventUUIDs...)
	}
	var found catalog.StoredEvents
	if slices.ContainsFunc(routes, func(r *routing) bool { return c.HasAdvancedFilters(r.TopicID) }) {
		found, err = catalog.ReadStoredBodies(ctx, tx, eventsOf(routes), days, ids, p.stepBytes)
	} else {
		found, err = catalog.ReadStoredEvents(ctx, tx, eventsOf(routes), days, ids)
	}
	for _, r := range routes {
		r.events = found.Read(r.EventUUIDs)
	}
	return routes, err
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
// for a large one, and the rest from the first routes that have more.
func cutRoutes(routes []*routing, c *catalog.Snapshot, limit int) []newDelivery {
	var list []newDelivery
	share := limit / len(routes)
	for _, r := range routes {
		list = r.take(list, c, share)
	}
	for _, r := range routes {
		list = r.take(list, c, limit-len(list))
	}
	return list
}

// take appends up to limit deliveries and moves the route's position behind them.
func (r *routing) take(list []newDelivery, c *catalog.Snapshot, limit int) []newDelivery {
	for ; r.taken < len(r.events); r.taken, r.After = r.taken+1, 0 {
		subscribers, e := r.subscribers(c), &r.events[r.taken]
		if len(subscribers) == 0 && r.After == 0 {
			r.match(0)
		}
		for _, sub := range subscribers {
			if limit == 0 {
				return list
			}
			r.match(1)
			list = append(list, newDelivery{
				event: r.EventUUIDs[r.taken], bytes: e.Bytes, sub: sub, route: r, since: e.PublishedAt,
			})
			r.After = sub.ID
			limit--
		}
	}
	return list
}

// missing counts the events whose rows are gone.
func (r *routing) missing() int {
	n := 0
	for i := range r.events {
		if r.events[i].PublishedAt.IsZero() {
			n++
		}
	}
	return n
}

// subscribers lists the event subscriptions that match the event at the position and have no delivery of it yet, by id:
// the catalog's order changes. An event subscription that was created after the event was accepted does not get it.
func (r *routing) subscribers(c *catalog.Snapshot) []*catalog.Subscription {
	e := &r.events[r.taken]
	if e.PublishedAt.IsZero() { // its row is gone, though no partition with unfinished deliveries is ever dropped
		return nil
	}
	matching := slices.DeleteFunc(c.Matching(r.TopicID, &e.Event), func(s *catalog.Subscription) bool {
		return s.ID <= r.After || s.CreatedAt.After(e.PublishedAt)
	})
	slices.SortFunc(matching, func(a, b *catalog.Subscription) int { return cmp.Compare(a.ID, b.ID) })
	return matching
}

// position is where the next step begins.
func (r *routing) position() (next int, finished bool) {
	next = r.Next + r.taken
	return next, next >= r.Total
}

// match counts event subscriptions that match the event at the position. Other events than those published by SQL were
// counted when they were published.
func (r *routing) match(count int) {
	if !r.BySQL {
		return
	}
	if last := len(r.matched) - 1; last >= 0 && r.matched[last].event == r.taken {
		r.matched[last].count += count
		return
	}
	r.matched = append(r.matched, matchedEvent{r, r.taken, count})
}
