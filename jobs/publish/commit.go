package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

// commit stores a group whose requests were all filtered by the same version of the catalog. errStale: nothing was
// stored. If filtered, it filters again by the catalog in the snapshot of its transaction, which is never stale. That
// takes several round trips instead of one, so it is for a catalog that changes faster than publishes commit.
func (p *Publisher) commit(ctx context.Context, group []*publishRequest, filtered bool) error {
	if len(group) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if group[0].keyed { // then all of them are
		return p.commitKeyed(ctx, group, filtered)
	}
	return p.begin(ctx, group, filtered, p.transact)
}

// begin begins a transaction, and calls store to end it. The statements of the batch come first.
func (p *Publisher) begin(
	ctx context.Context, group []*publishRequest, filtered bool,
	store func(context.Context, *pgxpool.Conn, *pgx.Batch, []*publishRequest, time.Time) error,
) error {
	return p.DB.WithConn(ctx, func(conn *pgxpool.Conn) error {
		began, batch := time.Now(), &pgx.Batch{}
		if !filtered {
			batch.Queue("BEGIN")
			return store(ctx, conn, batch, group, began)
		}
		if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		snapshot, err := p.Cache.ReadIn(ctx, conn, p.Cache.Snapshot())
		if err != nil {
			return fmt.Errorf("read the catalog: %w", err)
		}
		if group = refilter(group, snapshot); len(group) == 0 {
			return nil
		}
		return store(ctx, conn, batch, group, began)
	})
}

// Failpoints of the transaction that stores events: before it, in it, and after its commit and before the response.
const (
	PointPublishBefore = "publish.before"
	PointPublishInside = "publish.inside"
	PointPublishAfter  = "publish.after"
)

// transact runs T1, after the statements of the batch, in one round trip and completes the requests of the group.
func (p *Publisher) transact(
	ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest, began time.Time,
) error {
	version, found := group[0].version(), int64(0)
	p.Failpoint.Reach(PointPublishBefore)
	to := destinations(group)
	admitted := p.capacity(to)
	batch.Queue(p.DB.Keeping(postgres.KeepPlan))
	var stored storedRow
	handoff := p.newHandoff(group, began)
	defer func() { handoff.end(nil) }()
	if group[0].routed { // alone in its group
		batch.Queue(storeRouteStatement, eventColumns.Append(
			destinationColumns.Append([]any{version}, to), publishedEvents(group))...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	} else {
		args := publishedColumns.Append(destinationColumns.Append([]any{version, p.Node}, to),
			handoff.deliveries(group, admitted))
		batch.Queue(p.publishStatement(group, to), eventColumns.Append(args, publishedEvents(group))...).
			QueryRow(func(row pgx.Row) error {
				return row.Scan(&found, &stored.stored, &stored.began, &stored.readAt, &stored.ids, &stored.jobs,
					&stored.positions)
			})
	}
	if group[0].keyed {
		batch.Queue(requireCatalog, version)
	}
	batch.Queue("COMMIT")
	p.Failpoint.Reach(PointPublishInside)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	if found != version {
		return errStale
	}
	if !group[0].routed && !stored.stored {
		p.obstacles.Set(obstacleTime, subscriptionsOf(to)...)
		return errObstacle
	}
	p.Failpoint.Reach(PointPublishAfter)
	took := time.Since(began)
	p.groups.Observe(int64(eventsIn(group)))
	p.commitTime.Observe(int64(took))
	p.Traffic.Add(admitted)
	p.Backpressure.Created(began, admitted.Jobs()-len(stored.ids))
	handoff.commit(&stored)
	if group[0].routed {
		p.Notifier.RequestFetch(queue.RouteQueue)
	} else if len(stored.ids) < deliveriesOf(group) {
		p.Notifier.RequestDeliveries()
	}
	p.arrived(to)
	for _, req := range group {
		req.Receipt.Commit = took
		req.respond(nil)
	}
	return nil
}

// arrived wakes the receivers of event subscriptions that consumers pull.
func (p *Publisher) arrived(to []destination) {
	for _, d := range to {
		if d.pulled {
			p.Notifier.RequestReceives(d.subscriptionID)
		}
	}
}

// deliveriesOf counts the deliveries that a group creates at once; a route creates its deliveries later.
func deliveriesOf(group []*publishRequest) int {
	n := 0
	for _, req := range group {
		if !req.routed {
			n += req.Receipt.Deliveries()
		}
	}
	return n
}

func eventsIn(group []*publishRequest) int {
	n := 0
	for _, req := range group {
		n += len(req.Receipt.Events)
	}
	return n
}

func publishedEvents(group []*publishRequest) []publishedEvent {
	list := make([]publishedEvent, 0, eventsIn(group))
	for _, req := range group {
		for i := range req.Receipt.Events {
			list = append(list, publishedEvent{req, i})
		}
	}
	return list
}

// deliveries lists the deliveries of a group. admitted is how many of each event subscription may have a job now.
func (h *handoff) deliveries(group []*publishRequest, admitted queue.Admissions) []newDelivery {
	list := make([]newDelivery, 0, deliveriesOf(group))
	for _, req := range group {
		for i := range req.Receipt.Events {
			for _, sub := range req.subscribers[i] {
				admit := sub.Pulled() || admitted.Take(sub.ID)
				list = append(list, newDelivery{
					event: req.Receipt.SystemIDs[i], bytes: req.Receipt.Events[i].Size(), sub: sub, admitted: admit,
					reserved: h.reserve(req, i, sub, admit),
				})
			}
		}
	}
	return list
}
