package jobs

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/jobs/queue"
)

const (
	beatInterval   = time.Second
	deadAfterBeats = 4
	// A heartbeat that takes longer is abandoned with its connection. The next one, on a new connection, comes before the
	// other nodes have written four.
	beatTimeout       = 2 * time.Second
	reclaimInterval   = time.Second
	housekeepInterval = time.Minute
	drainInterval     = 5 * time.Second
	expireInterval    = time.Second
	noticeInterval    = time.Second
	tendInterval      = time.Second

	sweepInterval = time.Minute
	// sweepPause bounds the sweepers of all nodes to a hundredth of a core: after a pass a node pauses that many times as
	// long as the pass took, for each node. A pass over a million deliveries takes 8.5 s, so it begins each 14 minutes.
	sweepPause    = 100
	mergeInterval = 10 * time.Second

	// loopTimeout ends a run that is stuck; the next tick tries again.
	loopTimeout = 10 * time.Second
)

// loop is a task that each node repeats until its engine stops.
type loop struct {
	what      string // for the log
	interval  time.Duration
	requested <-chan struct{} // runs it before the interval has passed; nil = never
	run       func(context.Context) error
	unbounded bool // it bounds its statements itself
}

func (e *Engine) maintenanceLoops() []loop {
	p, m := &e.parts, e.parts.Maintenance
	claim := uncounted(p.Exports.ClaimExports)
	retain := func(ctx context.Context) error { return m.Retain(ctx, e.options.Retention) }
	return []loop{
		{what: "promoting due jobs", interval: promoteInterval, run: e.promote},
		{what: "releasing held deliveries", interval: promoteInterval, requested: p.Closed.Opened(), run: e.refill},
		{
			what: "releasing deliveries within rate limits", interval: promoteInterval,
			requested: p.Traffic.LimitedQueued(), run: e.refillLimited,
		},
		{what: "ending locks of consumers", interval: promoteInterval, run: p.Receiver.ExpireLocks},
		{what: "tending to queues", interval: tendInterval, run: p.Receiver.Tend},
		{what: "closing endpoints", interval: promoteInterval, requested: p.Closed.Changed(), run: p.Closed.Store},
		{what: "claiming dead letters to export", interval: exportInterval, requested: e.exported, run: claim},
		{what: "the heartbeat", interval: beatInterval, run: e.beat},
		{what: "reclaiming interrupted attempts", interval: reclaimInterval, requested: e.died, run: e.reclaim},
		{what: "checking for progress", interval: e.options.stallInterval, run: e.checkProgress},
		{what: "sweeping", interval: sweepInterval, run: e.sweep, unbounded: true},
		{what: "canceling deliveries of deleted event subscriptions", interval: drainInterval, run: p.Subscriptions.Drain},
		{what: "deleting expired event subscriptions", interval: expireInterval, run: p.Subscriptions.Expire},
		{what: "ending handshakes", interval: awaitInterval, run: p.Handshakes.Expire},
		{
			what: "publishing notices to topic " + catalog.SystemTopic, interval: noticeInterval,
			run: uncounted(m.PublishNotices),
		},
		{what: "merging roll-ups", interval: mergeInterval, run: uncounted(m.MergeRollups)},
		partitionLoop(m),
		{what: "removing data past its retention", interval: housekeepInterval, run: retain},
		{what: "removing expired rows", interval: housekeepInterval, run: e.clean},
		{what: "forgetting deleted event subscriptions", interval: housekeepInterval, run: e.forget},
		{what: "vacuuming", interval: vacuumInterval, run: m.VacuumJobs, unbounded: true},
	}
}

// uncounted drops the count that a task returns.
func uncounted(run func(context.Context) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := run(ctx)
		return err
	}
}

// partitionLoop keeps a week of partitions ahead. It checks every minute, though one is needed once a day: the database
// may be unavailable at midnight.
func partitionLoop(m *Maintenance) loop {
	return loop{what: "creating partitions", interval: housekeepInterval, run: m.EnsurePartitions}
}

// firstMinute is when the loops that run once a minute begin: a node that starts has more urgent work.
const firstMinute = 5 * time.Second

// startLoops starts the loops one after the other: started together, they would always run together, each on its own
// connection. In its first seconds, a node uses 20 % less of PostgreSQL's CPU.
func (e *Engine) startLoops(ctx context.Context) {
	loops := e.maintenanceLoops()
	for i, l := range loops {
		wait := time.Duration(i) * promoteInterval / time.Duration(len(loops))
		if l.interval >= housekeepInterval {
			wait += firstMinute
		}
		e.loops.Go(func() {
			pause(ctx, wait)
			if ctx.Err() == nil {
				e.repeat(ctx, l)
			}
		})
	}
}

// repeat runs a loop at once and then at its interval until ctx ends. Errors are logged: the next run is the retry.
func (e *Engine) repeat(ctx context.Context, l loop) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if !l.unbounded {
			bounded, cancel = context.WithTimeout(ctx, loopTimeout)
		}
		err := l.run(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.Warn(l.what+" failed, trying again", "in", l.interval, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.requested:
		}
	}
}

// beat writes this node's heartbeat and reads those of the others. Another loop replaces the jobs of dead nodes,
// because its statements may take longer.
func (e *Engine) beat(ctx context.Context) error {
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	beats, err := e.parts.Nodes.Beat(ctx, e.host, e.parts.Maintenance.Repairs())
	if stopping.Err() == nil {
		e.parts.Commits.Noted(postgres.HeartbeatCommits, err)
	}
	if err != nil {
		return err
	}
	dead := e.leases.dead(beats)
	for node, beat := range dead {
		e.log.Warn("a node stopped its heartbeat; the other nodes repeat its attempts", "node", node)
		if err := e.parts.Nodes.Unregister(ctx, node, &beat); err != nil {
			return err
		}
	}
	if len(dead) > 0 {
		queue.Signal(e.died) // do not wait for the next tick
	}
	return nil
}

// reclaim replaces the jobs of dead nodes, and this node's own that never arrived.
func (e *Engine) reclaim(ctx context.Context) error {
	lost, err := e.parts.JobRows.ReclaimFromLost(ctx)
	if err != nil {
		return err
	}
	own, err := e.parts.JobRows.ReclaimOwn(ctx, append(e.parts.Handoff.NotBegun(), e.parts.Active.IDs()...))
	if err != nil {
		return err
	}
	if lost+own > 0 {
		e.log.Warn("interrupted attempts are repeated", "from_lost_nodes", lost, "fetched_but_never_arrived", own)
	}
	return nil
}

// leaseWatch has the last heartbeats of the other nodes, and how many own heartbeats they have not changed for.
type leaseWatch map[string]struct{ beat, unchanged int64 }

// dead returns the nodes whose heartbeat did not change while this node wrote four. beats were read after one more own
// heartbeat. Counting heartbeats instead of seconds keeps all nodes alive through a restart of PostgreSQL.
func (w leaseWatch) dead(beats map[string]int64) map[string]int64 {
	dead, before := map[string]int64{}, maps.Clone(w)
	clear(w)
	for node, beat := range beats {
		last, known := before[node]
		if last.unchanged++; !known || last.beat != beat {
			last.beat, last.unchanged = beat, 0
		}
		if w[node] = last; last.unchanged >= deadAfterBeats {
			dead[node] = beat
		}
	}
	return dead
}

// clean removes unused rows: those of Maintenance.Clean, old handshakes and operations, sessions and temporary queries.
func (e *Engine) clean(ctx context.Context) error {
	return errors.Join(e.parts.Maintenance.Clean(ctx), e.parts.Handshakes.Clean(ctx),
		e.parts.Operator.CleanOperations(ctx), e.parts.Access.CleanSessions(ctx), e.parts.SavedQueries.Clean(ctx))
}

// forget frees the memory that this node uses for deleted event subscriptions.
func (e *Engine) forget(context.Context) error {
	snapshot := e.parts.Cache.Snapshot()
	e.parts.Gate.Forget(func(id int64) bool {
		_, known := snapshot.Subscription(id)
		return known
	})
	e.parts.Loader.Forget()
	e.parts.Recorder.Forget()
	return nil
}

// sweep repairs inconsistent rows. There should be none, so a repair is logged as an error: a statement separated a
// delivery from its job. Each step has its own timeout.
func (e *Engine) sweep(ctx context.Context) error {
	began := time.Now()
	found, err := e.parts.Maintenance.Sweep(ctx)
	if found.Total() > 0 {
		e.log.Error("inconsistent deliveries and jobs were repaired; this should never happen",
			"deliveries_without_job", found.Repaired, "jobs_without_delivery", found.Removed,
			"routes_without_job", found.Routes, "handshakes_without_job", found.Handshakes,
			"exports_without_job", found.Exports, "operations_without_job", found.Operations)
	}
	if err == nil {
		pause(ctx, time.Duration(sweepPause*e.parts.Nodes.WorkerNodes())*time.Since(began))
	}
	return err
}

// KeepPartitions creates partitions until ctx ends, for a node that stores events and has no Engine. An Engine does it
// itself.
func KeepPartitions(ctx context.Context, m *Maintenance, log *slog.Logger) {
	(&Engine{parts: Parts{Maintenance: m}, log: log}).repeat(ctx, partitionLoop(m))
}

const (
	// stallInterval is how often an engine checks that it makes progress.
	stallInterval = 5 * time.Second
	// StalledTooLong is the stall after which a node is not ready: longer than a restart of the database takes.
	StalledTooLong = time.Minute
)

// progress counts the attempts that an engine has begun, and those in flight.
type progress struct{ begun, inFlight atomic.Int64 }

func (p *progress) begin() {
	p.begun.Add(1)
	p.inFlight.Add(1)
}

func (p *progress) end() { p.inFlight.Add(-1) }

// stallWatch counts the consecutive checks that found due deliveries and no attempt. It counts checks instead of
// seconds: a process that was suspended has no stall.
type stallWatch struct{ begun, idle int64 }

// moves reports whether attempts are in flight, or were begun since the last check.
func (w *stallWatch) moves(p *progress) bool {
	begun := p.begun.Load()
	moved := begun != w.begun || p.inFlight.Load() > 0
	w.begun = begun
	return moved
}

// checkProgress checks that this node begins attempts if deliveries are due. Held deliveries are not due.
func (e *Engine) checkProgress(ctx context.Context) error {
	overdue := false
	if !e.stalls.moves(&e.progress) {
		var err error
		if overdue, err = query.Overdue(ctx, e.parts.DB.Pool); err != nil {
			return err
		}
	}
	if e.stalls.idle++; !overdue {
		e.stalls.idle = 0
	}
	stalled := time.Duration(e.stalls.idle) * e.options.stallInterval
	if before := time.Duration(e.stalled.Swap(int64(stalled))); stalled >= StalledTooLong && before < StalledTooLong {
		e.log.Error("deliveries are due and this node begins no attempt; restart it", "for", stalled)
	}
	return nil
}

// Stats are this node's counts.
type Stats struct {
	// InFlight counts the running jobs; MaxWorkers is their maximum.
	InFlight, MaxWorkers int
	// OpenCalls counts the requests that stay open past their ack timeout for a late response.
	OpenCalls int
	// Stalled is how long deliveries have been due and no attempt has begun; 0 while attempts are in flight.
	Stalled time.Duration
	// FetchLag is how long due jobs wait until this node fetches them; above 1 s publishes wait.
	FetchLag time.Duration
}

// Stats reads the counts.
func (e *Engine) Stats() Stats {
	return Stats{
		InFlight: e.parts.Active.Len(), MaxWorkers: e.parts.Handoff.Workers(), OpenCalls: e.endpoint.OpenCalls(),
		Stalled: time.Duration(e.stalled.Load()), FetchLag: e.parts.Backpressure.Lag(),
	}
}
