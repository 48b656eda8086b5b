package queue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"postrider/postgres"
)

// Notifier wakes River's fetchers on all nodes after commits, at most once a millisecond. It does so in a separate
// transaction that writes no data: PostgreSQL holds a server-wide lock over the commit of a transaction that notifies,
// and one NOTIFY per publish takes the rate from 10k/s to 3k/s.
type Notifier struct {
	db    *postgres.DB
	log   *slog.Logger
	nodes *Nodes
	wake  *Wake // of this process's own fetchers, nil if it has none
	queue chan struct{}
	// routes: a route job was stored since the last notification.
	routes atomic.Bool
	// mute: no node listens. Behind PgBouncer in transaction mode no session stays ours to LISTEN in; the fetchers poll.
	mute bool
}

const (
	notifyInterval = time.Millisecond
	// notifyTimeout closes a connection that does not respond and stays open.
	notifyTimeout = 5 * time.Second
	// River listens on "<schema>.river_insert" for {"queue": …}.
	notifyStatement     = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"deliveries"}')`
	notifyBothStatement = notifyStatement + `, pg_notify('postrider_internal.river_insert', '{"queue":"routes"}')`
)

// NewNotifier makes the notifier of a node; wake is nil on a node that makes no attempts.
func NewNotifier(db *postgres.DB, nodes *Nodes, wake *Wake, log *slog.Logger) *Notifier {
	return &Notifier{
		db: db, log: log, nodes: nodes, wake: wake, queue: make(chan struct{}, 1), mute: db.ThroughPgBouncer,
	}
}

// Poke wakes the fetchers of deliveries, and after pokeRoutes those of routes.
func (n *Notifier) Poke() {
	if n.wake != nil {
		routes := n.routes.Swap(false)
		n.wake.Request(DeliverQueue)
		if routes {
			n.wake.Request(RouteQueue)
		}
		if n.mute || n.nodes.alone() {
			return
		}
		if routes {
			n.routes.Store(true) // for the other nodes
		}
	}
	if !n.mute {
		signal(n.queue)
	}
}

// PokeRoutes wakes the fetchers of route jobs as well.
func (n *Notifier) PokeRoutes() {
	n.routes.Store(true)
	n.Poke()
}

// PokeQueue wakes the fetchers of a queue on all nodes. It is for queues with few jobs, because it takes a
// notification.
func (n *Notifier) PokeQueue(ctx context.Context, queue string) {
	const notify = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"' || $1::text || '"}')`
	if _, err := n.db.Exec(ctx, notify, queue); err != nil {
		n.log.Debug("the fetchers of a queue were not woken; they poll", "queue", queue, "error", err)
	}
}

func (n *Notifier) statement() string {
	if n.routes.Swap(false) {
		return notifyBothStatement
	}
	return notifyStatement
}

func (n *Notifier) notify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.db.Exec(ctx, n.statement())
	return err
}

// Run notifies the nodes after commits until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	pause := time.NewTicker(notifyInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.queue:
		}
		// A lost notification costs one poll interval (100 ms), never an event.
		if err := n.notify(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("the fetchers were not woken; they poll", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}
