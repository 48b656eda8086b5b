package jobs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"postrider/catalog"
)

const (
	beatInterval   = time.Second
	deadAfterBeats = 4
	// A heartbeat that takes longer is abandoned with its connection, in time for the next one to use a new connection
	// before the other nodes have written four.
	beatTimeout       = 2 * time.Second
	reclaimInterval   = time.Second
	housekeepInterval = time.Minute
	drainInterval     = 5 * time.Second
	expireInterval    = time.Second
	tellInterval      = time.Second
	// A statement of the maintenance loops that takes longer is stuck; the next tick tries again.
	clockworkTimeout = 10 * time.Second
)

// every calls do at once and then once per interval until ctx ends. Errors are logged: the next tick is the retry.
func (e *Engine) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	e.everyOr(ctx, interval, nil, what, do)
}

// everyOr also calls do on request.
func (e *Engine) everyOr(
	ctx context.Context, interval time.Duration, requested <-chan struct{}, what string, do func(context.Context) error,
) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, clockworkTimeout)
		err := do(bounded)
		cancel()
		e.parts.Disk.Noticed(err)
		if err != nil && ctx.Err() == nil {
			e.log.Warn(what+" failed, trying again", "in", interval, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-requested:
		}
	}
}

// signal fills a channel of capacity 1, if it is not full already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keepLease writes this node's heartbeat and reads those of the others. It does nothing else: jobs of dead nodes are
// replaced beside it, by statements that wait for the pool and may take longer.
func (e *Engine) keepLease(ctx context.Context) {
	watch := newLeaseWatch()
	e.every(ctx, beatInterval, "the heartbeat", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, beatTimeout)
		defer cancel()
		beats, err := e.parts.Nodes.Beat(ctx, e.host, e.parts.Maintenance.SweeperFinds())
		if err != nil {
			return err
		}
		dead := watch.dead(beats)
		for node, beat := range dead {
			e.log.Warn("a node stopped its heartbeat; the other nodes repeat its attempts", "node", node)
			if err := e.parts.Nodes.Unregister(ctx, node, &beat); err != nil {
				return err
			}
		}
		if len(dead) > 0 {
			signal(e.died) // do not wait for the next tick
		}
		return nil
	})
}

// reclaim replaces the jobs of dead nodes, and this node's own that never arrived.
func (e *Engine) reclaim(ctx context.Context) {
	e.everyOr(ctx, reclaimInterval, e.died, "reclaiming interrupted attempts", func(ctx context.Context) error {
		lost, err := e.parts.JobRows.ReclaimFromLost(ctx)
		if err != nil {
			return err
		}
		own, err := e.parts.JobRows.ReclaimOwn(ctx, append(e.active.IDs(), e.handoff.NotBegun()...))
		if err != nil {
			return err
		}
		if lost+own > 0 {
			e.log.Warn("interrupted attempts are repeated", "from_lost_nodes", lost, "fetched_but_never_arrived", own)
		}
		return nil
	})
}

// leaseWatch decides which nodes are dead: those whose heartbeat did not move while this node wrote four of its own.
// Counting own heartbeats instead of seconds keeps all nodes alive through a restart of PostgreSQL, when no node can
// write.
type leaseWatch struct{ seen map[string]sighting }

type sighting struct {
	beat      int64
	unchanged int
}

func newLeaseWatch() *leaseWatch { return &leaseWatch{seen: map[string]sighting{}} }

// dead returns the dead nodes. It takes the others' heartbeats as read after one more own heartbeat.
func (w *leaseWatch) dead(beats map[string]int64) map[string]int64 {
	dead := map[string]int64{}
	seen := make(map[string]sighting, len(beats))
	for node, beat := range beats {
		s := sighting{beat: beat}
		if before, known := w.seen[node]; known && before.beat == beat {
			s.unchanged = before.unchanged + 1
		}
		if s.unchanged >= deadAfterBeats {
			dead[node] = beat
		}
		seen[node] = s
	}
	w.seen = seen
	return dead
}

// keepPartitions keeps a week of partitions ahead. It checks every minute, though a partition is needed once a day: a
// database that was unavailable over midnight must not cost a day.
func (e *Engine) keepPartitions(ctx context.Context) {
	e.every(ctx, housekeepInterval, "creating partitions", e.parts.Maintenance.EnsurePartitions)
}

// retain removes finished data that is older than its retention.
func (e *Engine) retain(ctx context.Context) {
	e.every(ctx, housekeepInterval, "removing data past its retention",
		func(ctx context.Context) error { return e.parts.Maintenance.Retain(ctx, e.options.Retention) })
}

// clean removes jobs that River has finalized itself, probations without event subscriptions, expired idempotency keys,
// old handshakes and operations, notices without a reader, and expired sessions.
func (e *Engine) clean(ctx context.Context) {
	e.every(ctx, housekeepInterval, "removing expired rows", func(ctx context.Context) error {
		return errors.Join(e.parts.JobRows.CleanJobs(ctx), e.parts.Recorder.CleanProbations(ctx),
			e.parts.Publisher.CleanIdempotencyKeys(ctx), e.parts.Handshakes.Clean(ctx),
			e.parts.Maintenance.CleanNotices(ctx), e.parts.Operator.CleanOperations(ctx),
			e.parts.Access.CleanSessions(ctx), e.parts.JobRows.CleanLocks(ctx))
	})
}

// forget frees what this node remembers of deleted event subscriptions: if some are created and deleted all day, that
// would only grow.
func (e *Engine) forget(ctx context.Context) {
	e.every(ctx, housekeepInterval, "forgetting deleted event subscriptions", func(context.Context) error {
		catalogue := e.parts.Cache.Snapshot()
		e.gate.Forget(func(id int64) bool {
			_, known := catalogue.Subscription(id)
			return known
		})
		e.parts.Loader.Forget()
		e.parts.Recorder.Forget()
		return nil
	})
}

// drain cancels the pending deliveries of deleted event subscriptions, if the deletion itself did not complete it.
func (e *Engine) drain(ctx context.Context) {
	e.every(ctx, drainInterval, "canceling deliveries of deleted event subscriptions", e.parts.Subscriptions.Drain)
}

// expire deletes event subscriptions that have expired. They have matched nothing since that moment, on every node.
func (e *Engine) expire(ctx context.Context) {
	e.every(ctx, expireInterval, "deleting expired event subscriptions", e.parts.Subscriptions.Expire)
}

// tellOperators publishes the notices for operators to topic postrider.system.
func (e *Engine) tellOperators(ctx context.Context) {
	e.every(ctx, tellInterval, "telling what was noted for topic "+catalog.SystemTopic, func(ctx context.Context) error {
		told, err := e.parts.Maintenance.PublishNotices(ctx)
		if told > 0 {
			e.wake.RequestCollect()
		}
		return err
	})
}

// KeepPartitions creates partitions until ctx ends, for a node that stores events and has no Engine. An Engine does it
// itself.
func KeepPartitions(ctx context.Context, m *Maintenance, log *slog.Logger) {
	(&Engine{parts: Parts{Maintenance: m}, log: log}).keepPartitions(ctx)
}
