package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// freshPart is empty once the catalogue has moved on from the version that the filters were taken from ($1). Whatever a
// statement inserts is joined to it.
const freshPart = `fresh AS (
    SELECT version FROM postrider_internal.catalogue WHERE version = $1
)`

// storedPart inserts events: one array per column.
const storedPart = `stored AS (
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, catalogue_version, matched, event_id, event_type, subject, source, data_version, schema, body, traceparent, tracestate)
    SELECT e.id, (now() AT TIME ZONE 'UTC')::date, e.topic_id, now(), e.event_time, fresh.version, e.matched, e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.body,
           nullif(e.traceparent, ''), nullif(e.tracestate, '')
      FROM fresh, unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::text[], $13::text[])
           AS e(id, topic_id, event_time, matched, event_id, event_type, subject, source, data_version, schema, body, traceparent, tracestate)
)`

// owedPart makes the deliveries of owing, each with its job or its hold; $1 to $3 are the event subscriptions they go to. Job
// and delivery name each other, so both ids are drawn first. The day of the event travels in the delivery: it finds the
// partition.
//
// A delivery to an event subscription on hold gets the hold instead of a job, and so does one that finds too many jobs of its
// event subscription queued (admission). The rows that hold are locked against change until the commit: a release waits, and
// what it then looks for includes these deliveries. A row that somebody is changing at this moment is not waited for: that may be a
// person's transaction, open for as long as the person likes, and each publish of the node would stand behind it. The hold is then what
// it was before, and refilling, each second, lets go what that was wrong for.
//
// "(since IS NOT NULL) IS TRUE" keeps the plan from reading the whole index of those that rest.
//
// A delivery that this node takes over at once ($4) gets a job that is running here already, unless its endpoint has failed lately:
// what there is to know of that is loaded.
//
// Ids are drawn in the order of publishing, whatever way the plan joins: batches are cut in it.
//
// An event subscription that takes batches gets its deliveries as they are, and one pump: the job that cuts the next batch.
const owedPart = `held AS MATERIALIZED (
    SELECT subscription_id, hold FROM postrider_internal.event_subscription_states
     WHERE subscription_id = ANY ($1::bigint[]) AND hold IS NOT NULL FOR SHARE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT subscription_id, hold FROM postrider_internal.event_subscription_states WHERE subscription_id = ANY ($1::bigint[]) AND hold IS NOT NULL
), resting AS MATERIALIZED (
    SELECT rest_key FROM postrider_internal.probations WHERE rest_key = ANY ($2::bytea[]) AND (since IS NOT NULL) IS TRUE FOR SHARE SKIP LOCKED
), failing AS MATERIALIZED (
    SELECT rest_key, since IS NOT NULL AS rests FROM postrider_internal.probations WHERE rest_key = ANY ($2::bytea[])
), lanes AS MATERIALIZED (
    SELECT l.subscription_id, l.batching, coalesce(held.hold, seen.hold, CASE WHEN resting.rest_key IS NOT NULL OR failing.rests THEN 'probation' END) AS hold, failing.rest_key IS NULL AS calm
      FROM unnest($1::bigint[], $2::bytea[], $3::bool[]) AS l(subscription_id, rest_key, batching)
      LEFT JOIN held ON held.subscription_id = l.subscription_id
      LEFT JOIN seen ON seen.subscription_id = l.subscription_id
      LEFT JOIN resting ON resting.rest_key = l.rest_key
      LEFT JOIN failing ON failing.rest_key = l.rest_key
), owed AS MATERIALIZED (
    SELECT nextval('postrider_internal.deliveries_id_seq') AS id, d.*,
           CASE WHEN d.hold IS NULL AND NOT d.batching THEN nextval('postrider_internal.river_job_id_seq') END AS job_id,
           d.offered AND d.calm AND d.hold IS NULL AND NOT d.batching AS handed
      FROM (SELECT d.*, coalesce(lanes.hold, CASE WHEN NOT d.admitted THEN 'admission' END) AS hold, lanes.batching, lanes.calm
              FROM owing d JOIN lanes ON lanes.subscription_id = d.subscription_id ORDER BY d.place) d
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, attempt, attempted_at, attempted_by, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, CASE WHEN handed THEN 'running' ELSE 'available' END::postrider_internal.river_job_state, CASE WHEN handed THEN 1 ELSE 0 END,
           CASE WHEN handed THEN now() END, CASE WHEN handed THEN ARRAY [$4::text] END,
           jsonb_build_object('d', id, 's', subscription_id, 'n', 1), 'deliver', 'deliveries', 1, 1000, now() FROM owed WHERE job_id IS NOT NULL
), pumps AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT DISTINCT 'available'::postrider_internal.river_job_state, jsonb_build_object('s', subscription_id), 'batch', 'deliveries', 1, 1000, now() FROM owed WHERE batching AND hold IS NULL
), deliveries AS (
    INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes, job_id, hold, owed_since, next_attempt_at)
    SELECT id, subscription_id, topic_id, event_uuid, event_day, event_bytes, job_id, hold, owed_since, now() FROM owed
)`

// publishStatement is T1: events, deliveries and one job per delivery, if the catalogue still has the version that the
// filters were taken from. It answers the version it found, and what was handed over, see offeredRow.
var publishStatement = `
WITH ` + freshPart + `, ` + numbered(storedPart, 2) + `, owing AS (
    SELECT d.*, (now() AT TIME ZONE 'UTC')::date AS event_day, now() AS owed_since
      FROM fresh CROSS JOIN unnest($15::uuid[], $16::bigint[], $17::bigint[], $18::bool[], $19::int[], $20::bool[]) WITH ORDINALITY AS d(event_uuid, topic_id, subscription_id, admitted, event_bytes, offered, place)
), ` + numbered(owedPart, 23) + `, rolled AS (` + numbered(rolledPublish, 21) + `
)
SELECT c.version, now(), clock_timestamp(), h.ids, h.jobs, h.places
  FROM postrider_internal.catalogue c CROSS JOIN (
       SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(job_id), '{}') AS jobs, coalesce(array_agg(place), '{}') AS places FROM owed WHERE handed) h`

// numbered moves the parameters of a part that several statements share: its $1 becomes $first.
func numbered(part string, first int) string {
	return parameter.ReplaceAllStringFunc(part, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // the pattern lets only digits through
		return "$" + strconv.Itoa(first+n-1)
	})
}

var parameter = regexp.MustCompile(`\$[0-9]+`)

// commit stores a group whose requests were all filtered by the same version. errStale: nothing was stored.
func (p *Publisher) commit(ctx context.Context, group []*publishRequest) error {
	if len(group) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return p.db.WithConn(ctx, func(conn *pgxpool.Conn) error {
		return p.transact(ctx, conn, group, time.Now(), "BEGIN")
	})
}

// commitFiltered reads the catalogue, filters and stores in one snapshot of the database: it is never stale. It costs
// several round trips instead of one, so it is for a catalogue that changes faster than publishes commit.
func (p *Publisher) commitFiltered(ctx context.Context, group []*publishRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return p.db.WithConn(ctx, func(conn *pgxpool.Conn) error {
		began := time.Now()
		group, err := p.beginFiltered(ctx, conn, group)
		if err != nil || len(group) == 0 {
			return err
		}
		return p.transact(ctx, conn, group, began)
	})
}

// beginFiltered begins a transaction and filters by the catalogue of its snapshot.
func (p *Publisher) beginFiltered(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest) ([]*publishRequest, error) {
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	catalogue, err := p.cache.ReadIn(ctx, conn, p.cache.Catalogue())
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	return refilter(group, catalogue), nil
}

// Failpoints of the transaction that stores events: before it, in it, and after its commit and before the response.
const (
	PointPublishBefore = "publish.before"
	PointPublishInside = "publish.inside"
	PointPublishAfter  = "publish.after"
)

// transact runs T1, after the statements given, in one round trip and answers the group.
func (p *Publisher) transact(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest, began time.Time, before ...string) error {
	version, found := group[0].version(), int64(0)
	p.Reach(PointPublishBefore)
	admitted := p.traffic.admit(wantedBy(group))
	batch := &pgx.Batch{}
	for _, statement := range before {
		batch.Queue(statement)
	}
	batch.Queue(p.db.Keeping(keepPlan))
	var offered offeredRow
	offers := p.newOffers(group, began)
	defer func() { offers.end(nil) }()
	if group[0].routed { // alone in its group
		batch.Queue(storeRouteStatement, p.routeColumns(version, group)...).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	} else {
		batch.Queue(publishStatement, p.publishColumns(version, group, admitted, offers)...).QueryRow(func(row pgx.Row) error {
			return row.Scan(&found, &offered.began, &offered.readAt, &offered.ids, &offered.jobs, &offered.places)
		})
	}
	if group[0].keyed {
		batch.Queue(requireCatalogue, version)
	}
	batch.Queue("COMMIT")
	p.Reach(PointPublishInside)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	if found != version {
		return errStale
	}
	p.Reach(PointPublishAfter)
	took := time.Since(began)
	p.groups.Observe(int64(eventsIn(group)))
	p.commitTime.Observe(int64(took))
	p.traffic.add(admitted)
	offers.commit(&offered)
	switch {
	case group[0].routed:
		p.notifier.pokeRoutes()
	case len(offered.ids) < deliveriesOf(group):
		p.notifier.poke()
	}
	for _, req := range group {
		req.receipt.Commit = took
		req.answer(nil)
	}
	return nil
}

// deliveriesOf counts what a group owes at once; a route's deliveries are made later.
func deliveriesOf(group []*publishRequest) (n int) {
	for _, req := range group {
		if !req.routed {
			n += req.receipt.Deliveries()
		}
	}
	return n
}

// eventsIn counts what a group publishes.
func eventsIn(group []*publishRequest) (n int) {
	for _, req := range group {
		n += len(req.receipt.Events)
	}
	return n
}

// publishColumns turns the group into one array per column. admitted is how many deliveries of each event subscription may
// have a job at once.
func (p *Publisher) publishColumns(version int64, group []*publishRequest, admitted admissions, offers *offers) []any {
	e, d := newEventColumns(eventsIn(group)), newOwedColumns(deliveriesOf(group))
	for _, req := range group {
		for i := range req.receipt.Events {
			e.add(req, i)
			for _, sub := range req.wanting[i] {
				admit := admitted.take(sub.ID)
				d.add(req.receipt.SystemIDs[i], sub, admit, req.receipt.Events[i].Size())
				d.offered = append(d.offered, offers.offer(req, i, sub, admit))
			}
		}
	}
	c := publishedDestinations(group)
	values := append([]any{version}, e.values()...)
	return append(values, d.events, d.topics, d.subs, d.admitted, d.bytes, d.offered, c.topics, c.counts, c.subscriptions, c.restKeys, c.batching, p.node)
}

type owedColumns struct {
	events       [][16]byte
	topics, subs []int64
	admitted     []bool
	bytes        []int32
	offered      []bool // to this node's engine; publishes alone do that
}

func newOwedColumns(n int) *owedColumns {
	return &owedColumns{
		events: make([][16]byte, 0, n), topics: make([]int64, 0, n), subs: make([]int64, 0, n), admitted: make([]bool, 0, n), bytes: make([]int32, 0, n), offered: make([]bool, 0, n),
	}
}

func (c *owedColumns) add(event [16]byte, sub *Subscription, admitted bool, bytes int) {
	c.events = append(c.events, event)
	c.topics = append(c.topics, sub.TopicID)
	c.subs = append(c.subs, sub.ID)
	c.admitted = append(c.admitted, admitted)
	c.bytes = append(c.bytes, int32(bytes))
}

type eventColumns struct {
	ids                                                       [][16]byte
	topics                                                    []int64
	times                                                     []pgtype.Timestamptz
	matched                                                   []int32
	eventIDs, types, subjects, sources, dataVersions, schemas []string
	bodies                                                    [][]byte
	traceParents, traceStates                                 []string
}

func newEventColumns(n int) *eventColumns {
	text := func() []string { return make([]string, 0, n) }
	return &eventColumns{
		ids: make([][16]byte, 0, n), topics: make([]int64, 0, n), times: make([]pgtype.Timestamptz, 0, n), matched: make([]int32, 0, n),
		eventIDs: text(), types: text(), subjects: text(), sources: text(), dataVersions: text(), schemas: text(), bodies: make([][]byte, 0, n),
		traceParents: text(), traceStates: text(),
	}
}

func (c *eventColumns) add(req *publishRequest, i int) {
	e := &req.receipt.Events[i]
	c.ids = append(c.ids, req.receipt.SystemIDs[i])
	c.topics = append(c.topics, req.receipt.Topic.ID)
	c.times = append(c.times, pgtype.Timestamptz{Time: e.Time, Valid: !e.Time.IsZero()})
	c.matched = append(c.matched, int32(req.receipt.Matched[i]))
	c.eventIDs = append(c.eventIDs, e.ID)
	c.types = append(c.types, e.Type)
	c.subjects = append(c.subjects, e.Subject)
	c.sources = append(c.sources, e.Source)
	c.dataVersions = append(c.dataVersions, e.DataVersion)
	c.schemas = append(c.schemas, string(e.Schema))
	c.bodies = append(c.bodies, e.Body)
	c.traceParents = append(c.traceParents, e.Trace.Parent)
	c.traceStates = append(c.traceStates, e.Trace.State)
}

func (c *eventColumns) values() []any {
	return []any{c.ids, c.topics, c.times, c.matched, c.eventIDs, c.types, c.subjects, c.sources, c.dataVersions, c.schemas, c.bodies, c.traceParents, c.traceStates}
}
