package queue

import (
	"context"
	"log/slog"
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
	local *Wake // of this process's own fetchers, nil if it has none
	other *Wake // the queues that other nodes are to be notified of
	// mute: no node listens. Behind PgBouncer in transaction mode no session stays ours to LISTEN in; the fetchers poll.
	mute bool
}

const (
	notifyInterval = time.Millisecond
	// notifyTimeout closes a connection that does not respond and stays open.
	notifyTimeout = 5 * time.Second
	// River listens on "<schema>.river_insert" for {"queue": …}.
	notifyStatement = `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"' || queue || '"}')
		FROM unnest($1::text[]) AS q(queue)`
)

// NewNotifier makes the notifier of a node; wake is nil on a node that makes no attempts.
func NewNotifier(db *postgres.DB, nodes *Nodes, wake *Wake, log *slog.Logger) *Notifier {
	return &Notifier{db: db, log: log, nodes: nodes, local: wake, other: NewWake(), mute: db.ThroughPgBouncer}
}

// RequestFetch wakes the fetchers of a queue on all nodes.
func (n *Notifier) RequestFetch(queue string) {
	if n.local != nil {
		n.local.Request(queue)
	}
	if !n.mute && (n.local == nil || !n.nodes.alone()) {
		n.other.Request(queue)
	}
}

// RequestDeliveries wakes the fetchers of deliveries on all nodes.
func (n *Notifier) RequestDeliveries() { n.RequestFetch(DeliverQueue) }

// requested lists the queues that were requested since the last call.
func (n *Notifier) requested() (queues []string) {
	for queue := n.other.Next(); queue != ""; queue = n.other.Next() {
		queues = append(queues, queue)
	}
	return queues
}

func (n *Notifier) notify(ctx context.Context) error {
	queues := n.requested()
	if len(queues) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.db.Exec(ctx, notifyStatement, queues)
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
		case <-n.other.Requested():
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
