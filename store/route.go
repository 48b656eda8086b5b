package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// routeThreshold: 10,000 deliveries take a transaction about half a second, which is as long as a publisher should wait
	// and other publishers' groups should share the database with one request.
	routeThreshold = 10_000
	// routeStep is how many deliveries one transaction makes, of all the routes it works at.
	routeStep = 10_000
	// routeBytes is how many bytes of bodies a step reads where advanced filters ask for them. The first body is always read.
	routeBytes = 32 << 20
	// routeGroup leaves each route of a full group 20 deliveries a step.
	routeGroup = 500
)

// storeRouteStatement is T1 of a request that owes very many deliveries: its events, and one route with its job. It answers
// the version of the catalogue that it found.
var storeRouteStatement = `
WITH ` + freshPart + `, ` + numbered(storedPart, 2) + `, route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id)
    SELECT ($3::bigint[])[1], (now() AT TIME ZONE 'UTC')::date, $2::uuid[], nextval('postrider_internal.river_job_id_seq') FROM fresh
    RETURNING id, job_id
), route_job AS (` + routes.jobs("1", "now()", "route") + `
), rolled AS (` + numbered(rolledPublish, 15) + `
)
SELECT version FROM postrider_internal.catalogue`

// fanOutStatement makes one step of a group of routes, if the catalogue still has the version that the filters were taken
// from. The job row is the token, as it is for a delivery attempt: only the statement that deletes it makes deliveries, moves
// the route on and inserts the next step's job, which is a new row. So a step is made once, whoever else thinks it has the job.
//
// The time to live of these deliveries began when their event was accepted.
var fanOutStatement = `
WITH ` + freshPart + `, gone AS (
    DELETE FROM postrider_internal.river_job j USING fresh WHERE j.id = ANY ($2::bigint[]) AND j.kind = 'route' RETURNING j.id
), step AS MATERIALIZED (
    SELECT r.id, s.finished, s.next_event, s.after_subscription, CASE WHEN NOT s.finished THEN nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest($2::bigint[], $3::bigint[], $4::bool[], $5::int[], $6::bigint[]) AS s(job_id, route_id, finished, next_event, after_subscription)
      JOIN gone ON gone.id = s.job_id
      JOIN postrider_internal.routes r ON r.id = s.route_id AND r.job_id = s.job_id
), ended AS (
    DELETE FROM postrider_internal.routes r USING step WHERE r.id = step.id AND step.finished
), moved AS (
    UPDATE postrider_internal.routes r SET next_event = step.next_event, after_subscription = step.after_subscription, job_id = step.job_id
      FROM step WHERE r.id = step.id AND NOT step.finished
), successors AS (` + routes.jobs("1", "now()", "step WHERE NOT finished") + `
), owing AS (
    SELECT d.event_uuid, d.topic_id, d.subscription_id, d.admitted, d.event_bytes, d.event_day, d.owed_since, d.place, false AS offered
      FROM unnest($7::bigint[], $8::date[], $9::timestamptz[], $10::uuid[], $11::bigint[], $12::bigint[], $13::bool[], $14::int[]) WITH ORDINALITY
           AS d(route_id, event_day, owed_since, event_uuid, topic_id, subscription_id, admitted, event_bytes, place)
      JOIN step ON step.id = d.route_id
), ` + numbered(owedPart, 15) + `, rolled AS (` + rolledOwed + `
), rolled_publish AS (` + rolledRoute + `
)`

// matchedPart writes down how many wanted the events that were published by SQL. It is left out where there are none.
func matchedPart(routes []*routing) string {
	return `, matched AS MATERIALIZED (
    SELECT m.event_uuid, m.event_day, m.count FROM unnest($19::bigint[], $20::uuid[], $21::date[], $22::int[]) AS m(route_id, event_uuid, event_day, count) JOIN step ON step.id = m.route_id
), told AS (
    UPDATE ` + eventsOf(routes) + ` e SET matched = coalesce(e.matched, 0) + m.count, catalogue_version = $1 FROM matched m
     WHERE e.day = m.event_day AND e.id = m.event_uuid AND e.day = ANY (ARRAY (SELECT event_day FROM matched)) AND e.id = ANY (ARRAY (SELECT event_uuid FROM matched))
)`
}

const fanOutEnd = ` SELECT version, (SELECT count(*) FROM step WHERE NOT finished) FROM postrider_internal.catalogue`

// routeColumns turns a request into the columns of storeRouteStatement.
func (p *Publisher) routeColumns(version int64, group []*publishRequest) []any {
	e := newEventColumns(len(group[0].receipt.Events))
	for i := range group[0].receipt.Events {
		e.add(group[0], i)
	}
	counted := publishedDestinations(group)
	values := append([]any{version}, e.values()...)
	return append(values, counted.topics, counted.counts, counted.subscriptions)
}

type routeRequest struct {
	jobID int64
	// failed is set before done is closed.
	failed error
	done   chan struct{}
}

// Route makes the step of a route that this job stands for, up to 10,000 deliveries, and returns when it is committed, or when
// ctx ends: then it may still be. A job that is nobody's any more makes nothing, and that is no error. ErrPoison: PostgreSQL
// refuses this step.
func (p *Publisher) Route(ctx context.Context, jobID int64) error {
	req := &routeRequest{jobID: jobID, done: make(chan struct{})}
	p.routes.add(req)
	select {
	case <-req.done:
		return req.failed
	case <-ctx.Done():
		return fmt.Errorf("route events: %w", ctx.Err())
	}
}

func fitsRouting() func(*routeRequest) bool {
	n := 0
	return func(*routeRequest) bool {
		n++
		return n <= routeGroup
	}
}

// flushRoutes repeats until the step is made or the process stops. Repeating is safe: a job that is gone makes nothing.
func (p *Publisher) flushRoutes(ctx context.Context, group []*routeRequest) {
	slices.SortFunc(group, func(a, b *routeRequest) int { return int(a.jobID - b.jobID) })
	pause := recordMinPause
	for try := 0; ; try++ {
		err := isolate(group, func(part []*routeRequest) error { return p.stepRoutes(ctx, part, try >= optimisticTries) }, refuseRoute)
		if err == nil {
			break
		}
		if p.atOnce(ctx, err) {
			continue
		}
		p.log.Warn("events could not be routed, trying again", "routes", len(group), "in", pause, "error", err)
		if !waitAbout(ctx, pause) {
			return
		}
		pause = min(pause*2, recordMaxPause)
	}
	for _, req := range group {
		close(req.done)
	}
}

// atOnce reports an error that needs no pause.
func (p *Publisher) atOnce(ctx context.Context, err error) bool {
	if errors.Is(err, errStale) {
		return p.cache.Reload(ctx) == nil
	}
	return isTransient(err) && ctx.Err() == nil
}

func refuseRoute(req *routeRequest, err error) error {
	req.failed = fmt.Errorf("%w: %w", ErrPoison, err)
	return nil
}

// PointRoute is the failpoint before the commit of one step of a route job.
const PointRoute = "route"

// stepRoutes makes one step of a group. errStale: nothing was made. With snapshot the catalogue is read in the same moment of the
// database and is never stale.
func (p *Publisher) stepRoutes(ctx context.Context, group []*routeRequest, snapshot bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var admitted admissions
	var unfinished int
	err := pgx.BeginTxFunc(ctx, p.db, isolation(snapshot), func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, p.db.Keeping(keepPlan)); err != nil {
			return fmt.Errorf("keep plans: %w", err)
		}
		catalogue := p.cache.Catalogue()
		if snapshot {
			if catalogue, err = p.cache.ReadIn(ctx, tx, catalogue); err != nil {
				return fmt.Errorf("read the catalogue: %w", err)
			}
		}
		routes, err := p.readRoutes(ctx, tx, catalogue, group, max(p.stepLimit/len(group), 1))
		if err != nil || len(routes) == 0 {
			return err
		}
		for _, route := range routes {
			if n := route.missing(); n > 0 {
				p.log.Error("events are gone before their deliveries were made: somebody erased them, or removed their day by hand; publish them again if they are wanted",
					"topic_id", route.TopicID, "day", route.EventDay.Format(time.DateOnly), "events", n)
			}
		}
		owed := cutRoutes(routes, catalogue, p.stepLimit)
		admitted = p.traffic.admit(subscriptionsOf(owed))
		var found int64
		statement, values := fanOutStatement+fanOutEnd, append(fanOutColumns(catalogue, routes, owed, admitted), p.node)
		if matched := matchedColumns(routes); matched != nil {
			statement, values = fanOutStatement+matchedPart(routes)+fanOutEnd, append(values, matched...)
		}
		row := tx.QueryRow(ctx, statement, values...)
		if err = row.Scan(&found, &unfinished); err == nil && found != catalogue.Version {
			err = errStale
		}
		p.Reach(PointRoute)
		return err
	})
	if err != nil {
		return fmt.Errorf("route events: %w", err)
	}
	p.traffic.add(admitted)
	p.notifier.poke()
	if unfinished > 0 {
		p.notifier.pokeRoutes()
	}
	return nil
}

func isolation(snapshot bool) pgx.TxOptions {
	if snapshot {
		return pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
	}
	return pgx.TxOptions{}
}
