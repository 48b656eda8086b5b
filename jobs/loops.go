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
	// Loops run at four intervals. A loop of promptly is one that deliveries wait for.
	promptly     = 250 * time.Millisecond
	eachSecond   = time.Second
	occasionally = 10 * time.Second
	eachMinute   = time.Minute

	deadAfterBeats = 4
	// A heartbeat that takes longer is abandoned with its connection. The next one, on a new connection, comes before the
	// other nodes have written four.
	beatTimeout = 2 * time.Second
	// sweepPause bounds the sweepers of all nodes to a hundredth of a core: after a pass a node pauses that many times as
	// long as the pass took, for each node. A pass over a million deliveries takes 8.5 s, so it begins each 14 minutes.
	sweepPause = 100
	// taskTimeout ends a task that is stuck; the next run tries again.
	taskTimeout = 10 * time.Second
)

// loop runs its tasks one after the other, again and again until its engine stops.
type loop struct {
	interval  time.Duration
	requested <-chan struct{} // runs them before the interval has passed; nil = never
	tasks     []task
}

// task is what a loop does.
type task struct {
	what      string // for the log
	run       func(context.Context) error
	unbounded bool // it bounds its statements itself
}

// maintenanceLoops are the loops of each node. A task has its own loop if others must not wait for it (it is slow or
// requested often), or if it must not wait for others (the heartbeat, the promotion of due jobs).
func (e *Engine) maintenanceLoops() []loop {
	p, m := &e.parts, e.parts.Maintenance
	return []loop{
		{promptly, nil, []task{{what: "promoting due jobs", run: e.promote}}},
		{promptly, p.Closed.Opened(), []task{{what: "releasing held deliveries", run: e.refill, unbounded: true}}},
		{promptly, p.Traffic.LimitedQueued(), []task{
			{what: "releasing deliveries within rate limits", run: e.refillLimited, unbounded: true},
		}},
		{promptly, p.Closed.Changed(), []task{{what: "closing endpoints", run: p.Closed.Store}}},
		{promptly, nil, []task{{what: "ending locks of consumers", run: p.Receiver.ExpireLocks}}},
		{eachSecond, nil, []task{{what: "the heartbeat", run: e.beat}}},
		{eachSecond, e.died, []task{{what: "reclaiming interrupted attempts", run: e.reclaim}}},
		{eachSecond, nil, []task{
			{what: "tending to queues", run: p.Receiver.Tend},
			{what: "deleting expired event subscriptions", run: p.Subscriptions.Expire},
			{what: "publishing notices to topic " + catalog.SystemTopic, run: uncounted(m.PublishNotices)},
		}},
		{e.options.stallInterval, nil, []task{{what: "checking for progress", run: e.checkProgress}}},
		{occasionally, e.exported, []task{
			{what: "claiming dead letters to export", run: uncounted(p.Exports.ClaimExports)},
		}},
		{occasionally, nil, []task{
			{what: "canceling deliveries of deleted event subscriptions", run: p.Subscriptions.Drain},
			{what: "ending handshakes", run: p.Handshakes.Expire},
			{what: "merging roll-ups", run: uncounted(m.MergeRollups)},
		}},
		{vacuumInterval, nil, []task{{what: "vacuuming", run: m.VacuumJobs, unbounded: true}}},
		{eachMinute, nil, []task{
			createPartitions(m),
			{what: "removing data past its retention", run: func(ctx context.Context) error {
				return m.Retain(ctx, e.options.Retention)
			}},
			{what: "removing expired rows", run: e.clean},
			{what: "forgetting deleted event subscriptions", run: e.forget},
		}},
		{eachMinute, nil, []task{{what: "sweeping", run: e.sweep, unbounded: true}}},
	}
}

// uncounted drops the count that a task returns.
func uncounted(run func(context.Context) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := run(ctx)
		return err
	}
}

// createPartitions keeps a week of partitions ahead. It checks every minute, though one is needed once a day: the
// database may be unavailable at midnight.
func createPartitions(m *Maintenance) task {
	return task{what: "creating partitions", run: m.EnsurePartitions}
}

// firstMinute is when the loops that run once a minute begin: a node that starts has more urgent work.
const firstMinute = 5 * time.Second

// repeat runs the tasks at once and then at their interval until ctx ends. An error is logged: the next run is the
// retry.
func (l loop) repeat(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, t := range l.tasks {
			bounded, cancel := ctx, context.CancelFunc(func() {})
			if !t.unbounded {
				bounded, cancel = context.WithTimeout(ctx, taskTimeout)
			}
			err := t.run(bounded)
			cancel()
			if err != nil && ctx.Err() == nil {
				log.Warn(t.what+" failed, trying again", "in", l.interval, "error", err)
			}
		}
		select {
		case <-ctx.Done():
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

// clean removes unused rows.
func (e *Engine) clean(ctx context.Context) (err error) {
	for _, clean := range e.parts.Cleaners {
		err = errors.Join(err, clean(ctx))
	}
	return err
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
	if found.Repaired+found.Removed > 0 {
		e.log.Error("inconsistent rows and jobs were repaired; this should never happen",
			"rows_without_job", found.Repaired, "jobs_without_delivery", found.Removed)
	}
	if err == nil {
		pause(ctx, time.Duration(sweepPause*e.parts.Nodes.WorkerNodes())*time.Since(began))
	}
	return err
}

// KeepPartitions creates partitions until ctx ends, for a node that stores events and has no Engine. An Engine does it
// itself.
func KeepPartitions(ctx context.Context, m *Maintenance, log *slog.Logger) {
	loop{eachMinute, nil, []task{createPartitions(m)}}.repeat(ctx, log)
}

// StalledTooLong is the stall after which a node is not ready: longer than a restart of the database takes.
const StalledTooLong = time.Minute

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
