package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

const (
	// routeThreshold: 10,000 deliveries take a transaction about half a second, which is as long as a publisher should
	// wait and other publishers' groups should share the database with one request.
	routeThreshold = 10_000
	// routeStep is how many deliveries one transaction makes, of all the routes it works at.
	routeStep = 10_000
	// routeBytes is how many bytes of bodies a step reads where advanced filters ask for them. The first body is always
	// read.
	routeBytes = 32 << 20
	// routeGroup leaves each route of a full group 20 deliveries a step.
	routeGroup = 500

	// The pauses after a step that failed.
	routeMinPause = 50 * time.Millisecond
	routeMaxPause = 2 * time.Second
)

type routeRequest struct {
	jobID int64
	// failed is set before done is closed.
	failed error
	done   chan struct{}
}

// Route makes the step of a route that this job stands for, up to 10,000 deliveries, and returns when it is committed,
// or when ctx ends: then it may still be. A job that is nobody's any more makes nothing, and that is no error.
// ErrPoison: PostgreSQL refuses this step.
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

// flushRoutes repeats until the step is made or the process stops. Repeating is safe: a job that is gone makes nothing.
func (p *Publisher) flushRoutes(ctx context.Context, group []*routeRequest) {
	slices.SortFunc(group, func(a, b *routeRequest) int { return int(a.jobID - b.jobID) })
	pause := routeMinPause
	for try := 0; ; try++ {
		err := postgres.Isolate(group,
			func(part []*routeRequest) error { return p.stepRoutes(ctx, part, try >= p.optimistic) }, rejectRoute)
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

func rejectRoute(req *routeRequest, err error) error {
	req.failed = fmt.Errorf("%w: %w", postgres.ErrPoison, err)
	return nil
}

// PointRoute is the failpoint before the commit of one step of a route job.
const PointRoute = "route"

// stepRoutes makes one step of a group. errStale: nothing was made. With snapshot the catalogue is read in the same
// moment of the database and is never stale.
func (p *Publisher) stepRoutes(ctx context.Context, group []*routeRequest, snapshot bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var admitted queue.Admissions
	var unfinished int
	err := pgx.BeginTxFunc(ctx, p.DB, isolation(snapshot), func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, p.DB.Keeping(postgres.KeepPlan)); err != nil {
			return fmt.Errorf("keep plans: %w", err)
		}
		catalogue := p.Cache.Snapshot()
		if snapshot {
			if catalogue, err = p.Cache.ReadIn(ctx, tx, catalogue); err != nil {
				return fmt.Errorf("read the catalogue: %w", err)
			}
		}
		routes, err := p.readRoutes(ctx, tx, catalogue, group, max(p.stepLimit/len(group), 1))
		if err != nil || len(routes) == 0 {
			return err
		}
		for _, route := range routes {
			if n := route.missing(); n > 0 {
				p.Log.Error("events were erased, or their partition dropped, before their deliveries were created; "+
					"publish them again if they are needed",
					"topic_id", route.TopicID, "day", route.EventDay.Format(time.DateOnly), "events", n)
			}
		}
		owed := cutRoutes(routes, catalogue, p.stepLimit)
		to := routedTo(catalogue, owed)
		admitted = p.Traffic.Admit(subscriptionsOf(to))
		args := destinationColumns.Append([]any{catalogue.Version, p.Node}, to)
		args = routedColumns.Append(routeColumns.Append(args, routes), routedDeliveries(owed, admitted))
		statement, matched := fanOutStatement, matchedEvents(routes)
		if matched != nil {
			statement = strings.Replace(fanOutBySQLStatement, catalog.AllEvents, eventsOf(routes), 1)
			args = matchedColumns.Append(args, matched)
		}
		var found int64
		row := tx.QueryRow(ctx, statement, args...)
		if err = row.Scan(&found, &unfinished); err == nil && found != catalogue.Version {
			err = errStale
		}
		p.Failpoint.Reach(PointRoute)
		return err
	})
	if err != nil {
		return fmt.Errorf("route events: %w", err)
	}
	p.Traffic.Add(admitted)
	p.Notifier.RequestDeliveries()
	if unfinished > 0 {
		p.Notifier.RequestFetch(queue.RouteQueue)
	}
	return nil
}

func isolation(snapshot bool) pgx.TxOptions {
	if snapshot {
		return pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
	}
	return pgx.TxOptions{}
}
