package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// notifier wakes River's fetchers on all nodes after commits, at most once a millisecond. It does so in a transaction
// of its own that writes no data: PostgreSQL holds a server-wide lock over the commit of a transaction that notifies, and
// one NOTIFY per publish takes the rate from 10k/s to 3k/s.
type notifier struct {
	db   *DB
	log  *slog.Logger
	wake chan struct{}
	// routes: a route job was stored since the last notification.
	routes atomic.Bool
	// local wakes the fetchers of this process, if it has any; alone says that there are no others.
	local func(routes bool)
	alone func() bool
	// mute: nobody listens. Behind PgBouncer in transaction mode no session stays ours to LISTEN in; the fetchers poll.
	mute bool
}

const (
	notifyInterval = time.Millisecond
	// notifyTimeout gives up on a connection that answers nothing and stays open.
	notifyTimeout = 5 * time.Second
	// River listens on "<schema>.river_insert" for {"queue": …}.
	notifyStatement     = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"deliveries"}')`
	notifyBothStatement = notifyStatement + `, pg_notify('postrider_internal.river_insert', '{"queue":"routes"}')`
)

func newNotifier(db *DB, log *slog.Logger, alone func() bool) *notifier {
	return &notifier{db: db, log: log, wake: make(chan struct{}, 1), alone: alone, mute: db.ThroughPgBouncer}
}

// SetWake tells how this process's own fetchers are woken, those of route jobs as well when asked to. Call it before Run.
func (s *Store) SetWake(wake func(routes bool)) { s.notifier.local = wake }

func (n *notifier) poke() {
	if n.local != nil {
		routes := n.routes.Swap(false)
		n.local(routes)
		if n.mute || n.alone() {
			return
		}
		if routes {
			n.routes.Store(true) // for the other nodes
		}
	}
	if n.mute {
		return
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// pokeRoutes wakes the fetchers of route jobs as well.
func (n *notifier) pokeRoutes() {
	n.routes.Store(true)
	n.poke()
}

func (n *notifier) statement() string {
	if n.routes.Swap(false) {
		return notifyBothStatement
	}
	return notifyStatement
}

func (n *notifier) notify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.db.Exec(ctx, n.statement())
	return err
}

func (n *notifier) run(ctx context.Context) {
	pause := time.NewTicker(notifyInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
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

// pokeQueue wakes the fetchers of a queue, of all nodes. It is for queues with few jobs: a notification each costs nobody anything.
// Where nobody listens they poll.
func (s *Store) pokeQueue(ctx context.Context, queue string) {
	const notify = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"' || $1::text || '"}')`
	if _, err := s.db.Exec(ctx, notify, queue); err != nil {
		s.log.Debug("the fetchers of a queue were not woken; they poll", "queue", queue, "error", err)
	}
}
