package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

// publishStatement is T1. It returns what offeredRow has, after the version of the catalog.
var publishStatement = sqlFile("publish.sql")

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
func (p *Publisher) beginFiltered(
	ctx context.Context, conn *pgxpool.Conn, group []*publishRequest,
) ([]*publishRequest, error) {
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	catalogue, err := p.cache.ReadIn(ctx, conn, p.cache.Snapshot())
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
func (p *Publisher) transact(
	ctx context.Context, conn *pgxpool.Conn, group []*publishRequest, began time.Time, before ...string,
) error {
	version, found := group[0].version(), int64(0)
	p.Reach(PointPublishBefore)
	admitted := p.traffic.Admit(wantedBy(group))
	batch := &pgx.Batch{}
	for _, statement := range before {
		batch.Queue(statement)
	}
	batch.Queue(p.db.Keeping(postgres.KeepPlan))
	var offered offeredRow
	offers := p.newOffers(group, began)
	defer func() { offers.end(nil) }()
	if group[0].routed { // alone in its group
		batch.Queue(storeRouteStatement, p.routeColumns(version, group)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	} else {
		batch.Queue(publishStatement, p.publishColumns(version, group, admitted, offers)...).
			QueryRow(func(row pgx.Row) error {
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
	p.traffic.Add(admitted)
	offers.commit(&offered)
	switch {
	case group[0].routed:
		p.notifier.PokeRoutes()
	case len(offered.ids) < deliveriesOf(group):
		p.notifier.Poke()
	}
	for _, req := range group {
		req.Receipt.Commit = took
		req.answer(nil)
	}
	return nil
}

// deliveriesOf counts what a group owes at once; a route's deliveries are made later.
func deliveriesOf(group []*publishRequest) (n int) {
	for _, req := range group {
		if !req.routed {
			n += req.Receipt.Deliveries()
		}
	}
	return n
}

// eventsIn counts what a group publishes.
func eventsIn(group []*publishRequest) (n int) {
	for _, req := range group {
		n += len(req.Receipt.Events)
	}
	return n
}

// publishColumns turns the group into one array per column. admitted is how many deliveries of each event subscription
// may have a job at once.
func (p *Publisher) publishColumns(
	version int64, group []*publishRequest, admitted queue.Admissions, offers *offers,
) []any {
	e, d := newEventColumns(eventsIn(group)), newOwedColumns(deliveriesOf(group))
	for _, req := range group {
		for i := range req.Receipt.Events {
			e.add(req, i)
			for _, sub := range req.wanting[i] {
				admit := admitted.Take(sub.ID)
				d.add(req.Receipt.SystemIDs[i], sub, admit, req.Receipt.Events[i].Size())
				d.offered = append(d.offered, offers.offer(req, i, sub, admit))
			}
		}
	}
	c := publishedDestinations(group)
	values := []any{version, c.subscriptions, c.restKeys, c.batching, p.node, c.topics, c.counts}
	return append(append(values, e.values()...), d.events, d.topics, d.subs, d.admitted, d.bytes, d.offered)
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
		events: make([][16]byte, 0, n), topics: make([]int64, 0, n), subs: make([]int64, 0, n), admitted: make([]bool, 0, n),
		bytes: make([]int32, 0, n), offered: make([]bool, 0, n),
	}
}

func (c *owedColumns) add(event [16]byte, sub *catalog.Subscription, admitted bool, bytes int) {
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
		ids: make([][16]byte, 0, n), topics: make([]int64, 0, n), times: make([]pgtype.Timestamptz, 0, n),
		matched:  make([]int32, 0, n),
		eventIDs: text(), types: text(), subjects: text(), sources: text(), dataVersions: text(), schemas: text(),
		bodies:       make([][]byte, 0, n),
		traceParents: text(), traceStates: text(),
	}
}

func (c *eventColumns) add(req *publishRequest, i int) {
	e := &req.Receipt.Events[i]
	c.ids = append(c.ids, req.Receipt.SystemIDs[i])
	c.topics = append(c.topics, req.Receipt.Topic.ID)
	c.times = append(c.times, pgtype.Timestamptz{Time: e.Time, Valid: !e.Time.IsZero()})
	c.matched = append(c.matched, int32(req.Receipt.Matched[i]))
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
	return []any{
		c.ids, c.topics, c.times, c.matched, c.eventIDs, c.types, c.subjects, c.sources, c.dataVersions, c.schemas, c.bodies,
		c.traceParents, c.traceStates,
	}
}
