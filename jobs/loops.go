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
	// sweepPause bounds the sweepers of all nodes to a hundredth of a core, if a pass takes at most 36 s: after a pass a
	// node pauses that many times as long as the pass took, for each node. A pass over a million deliveries takes 8.5 s,
	// so it begins each 14 minutes.
	sweepPause = 100
	// sweepLimit bounds the pause for each node: after a pass that a slow database made last ten minutes, no other would
	// begin for 17 hours.
	sweepLimit = time.Hour
	// A spaced task may use a twentieth of a connection's time, and runs at least twice a minute. While a long
	// transaction holds back vacuum, the running jobs are found among the dead ones: 600,000 after ten minutes at 1,000
	// events/s.
	spacedShare = 20
	spacedLimit = 30 * time.Second
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
	spaced    bool // its loop pauses longer after a slow run, see spacedShare
}

// maintenanceLoops are the loops of each node. A task has its own loop if others must not wait for it (it is slow or
// requested often), or if it must not wait for others (the heartbeat, the promotion of due jobs).
func (e *Engine) maintenanceLoops(p *Parts, due *promoter, sql *collector, exported <-chan struct{}) []loop {
	m := p.Maintenance
	eachMinutes := []task{
		createPartitions(m),
		{what: "removing data past its retention", run: func(ctx context.Context) error {
			return m.Retain(ctx, e.options.Retention)
		}},
		{what: "forgetting deleted event subscriptions", run: e.deliverer.forget},
	}
	for _, clean := range p.Cleaners {
		eachMinutes = append(eachMinutes, task{what: "removing expired rows", run: clean})
	}
	return []loop{
		{promptly, nil, []task{{what: "promoting due jobs", run: due.promote}}},
		{promptly, p.Closed.Opened(), []task{{what: "releasing held deliveries", run: due.refill, unbounded: true}}},
		{promptly, p.Traffic.LimitedQueued(), []task{
			{what: "releasing deliveries within rate limits", run: due.refillLimited, unbounded: true},
		}},
		{promptly, sql.again, []task{{what: "collecting publishes by SQL", run: sql.collect, unbounded: true}}},
		{promptly, p.Closed.Changed(), []task{{what: "closing endpoints", run: p.Closed.Store}}},
		{promptly, nil, []task{{what: "ending locks of consumers", run: p.Receiver.ExpireLocks}}},
		{eachSecond, nil, []task{{what: "the heartbeat", run: e.upkeep.beat}}},
		{eachSecond, e.upkeep.died, []task{
			{what: "reclaiming interrupted attempts", run: e.upkeep.reclaim, spaced: true},
		}},
		{eachSecond, nil, []task{
			{what: "tending to queues", run: p.Receiver.Tend},
			{what: "deleting expired event subscriptions", run: p.Subscriptions.Expire},
			{what: "publishing notices to topic " + catalog.SystemTopic, run: uncounted(m.PublishNotices)},
		}},
		{eachSecond, nil, []task{{what: "closing unused clients of brokers", run: e.deliverer.closeBrokers}}},
		{e.stalls.interval, nil, []task{{what: "checking for progress", run: e.stalls.check}}},
		{occasionally, exported, []task{
			{what: "claiming dead letters to export", run: uncounted(p.Exports.ClaimExports)},
		}},
		{occasionally, nil, []task{
			{what: "canceling deliveries of deleted event subscriptions", run: p.Subscriptions.Drain},
			{what: "ending handshakes", run: p.Handshakes.Expire},
			{what: "merging roll-ups", run: uncounted(m.MergeRollups)},
		}},
		{observeInterval, nil, []task{{what: "observing problems", run: uncounted(m.ObserveProblems)}}},
		{vacuumInterval, nil, []task{{what: "vacuuming", run: m.VacuumJobs, unbounded: true}}},
		{eachMinute, nil, eachMinutes},
		{eachMinute, nil, []task{{what: "sweeping", run: e.upkeep.sweep, unbounded: true}}},
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
			began := time.Now()
			run := func(ctx context.Context) error { return within(ctx, taskTimeout, t.run) }
			if t.unbounded {
				run = t.run
			}
			err := run(ctx)
			if err != nil && ctx.Err() == nil {
				log.Warn(t.what+" failed, trying again", "in", l.interval, "error", err)
			}
			pause := l.interval
			if t.spaced && err == nil {
				pause = max(pause, min(spacedShare*time.Since(began), spacedLimit))
			}
			tick.Reset(pause)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-l.requested:
		}
	}
}

// upkeep keeps this node's lease, and repairs what interrupted nodes have left.
type upkeep struct {
	*runs
	host        string
	nodes       *queue.Nodes
	commits     *postgres.Commits
	maintenance *Maintenance
	watch       leaseWatch
	died        chan struct{} // a node was found dead
}

// beat writes this node's heartbeat and reads those of the others. Another loop replaces the jobs of dead nodes,
// because its statements may take longer.
func (u *upkeep) beat(ctx context.Context) error {
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	beats, err := u.nodes.Beat(ctx, u.host, u.maintenance.Repairs())
	if stopping.Err() == nil {
		u.commits.Noted(postgres.HeartbeatCommits, err)
	}
	if err != nil {
		return err
	}
	dead := u.watch.dead(beats)
	if len(dead) > 0 {
		defer queue.Signal(u.died) // do not wait for the next tick, also if an error follows
	}
	for node, beat := range dead {
		u.log.Warn("a node stopped its heartbeat; the other nodes repeat its attempts", "node", node)
		if err := u.nodes.Unregister(ctx, node, &beat); err != nil {
			return err
		}
	}
	return nil
}

// reclaim replaces the jobs of dead nodes, and this node's own that never arrived.
func (u *upkeep) reclaim(ctx context.Context) error {
	lost, err := u.JobRows.ReclaimFromLost(ctx)
	if err != nil {
		return err
	}
	own, err := u.JobRows.ReclaimOwn(ctx, u.Active.IDs())
	if err != nil {
		return err
	}
	if lost+own > 0 {
		u.log.Warn("interrupted attempts are repeated", "from_lost_nodes", lost, "fetched_but_never_arrived", own)
	}
	return nil
}

// giveBack gives the jobs that this node did not end to other nodes, and removes its lease last. Only cut jobs are
// reruns. No step waits for a job that another transaction has locked: another node reclaims that job as a rerun.
func (u *upkeep) giveBack(ctx context.Context, notBegun []int64) error {
	replace := func(run func(context.Context, []int64) (int, error), jobs []int64) error {
		ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
		defer cancel()
		_, err := run(ctx, jobs)
		return err
	}
	return errors.Join(replace(u.JobRows.Reclaim, u.interrupted.IDs()), replace(u.JobRows.GiveBack, notBegun),
		within(ctx, taskTimeout, func(ctx context.Context) error { return u.nodes.Unregister(ctx, u.node, nil) }))
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

// sweep repairs inconsistent rows. There should be none, so a repair is logged as an error: a statement separated a
// delivery from its job. Each step has its own timeout.
func (u *upkeep) sweep(ctx context.Context) error {
	began := time.Now()
	found, err := u.maintenance.Sweep(ctx)
	if found.Repaired+found.Removed > 0 {
		u.log.Error("inconsistent rows and jobs were repaired; this should never happen",
			"rows_without_job", found.Repaired, "jobs_without_delivery", found.Removed)
	}
	if err == nil {
		queue.Pause(ctx, afterSweep(time.Since(began), u.nodes.WorkerNodes()))
	}
	return err
}

// afterSweep is the pause after a pass that took so long.
func afterSweep(took time.Duration, nodes int) time.Duration {
	return min(sweepPause*took, sweepLimit) * time.Duration(nodes)
}

// forget frees the memory that this node uses for deleted event subscriptions.
func (d *deliverer) forget(context.Context) error {
	snapshot := d.cache.Snapshot()
	d.Gate.Forget(func(id int64) bool {
		_, known := snapshot.Subscription(id)
		return known
	})
	d.Loader.Forget()
	d.Recorder.Forget()
	return nil
}

// KeepPartitions creates partitions until ctx ends, for a node that stores events and has no Engine. An Engine does it
// itself.
func KeepPartitions(ctx context.Context, m *Maintenance, log *slog.Logger) {
	loop{eachMinute, nil, []task{createPartitions(m)}}.repeat(ctx, log)
}

// StalledTooLong is the stall after which a node is not ready: longer than a restart of the database takes.
const StalledTooLong = time.Minute

// stallWatch counts the consecutive checks that found due deliveries and no attempt. It counts checks instead of
// seconds: a process that was suspended has no stall.
type stallWatch struct {
	*runs
	db       *postgres.DB
	interval time.Duration

	begun, idle int64
	stalled     atomic.Int64 // a duration, see Stats
}

// moves reports whether attempts are in flight, or were begun since the last check.
func (w *stallWatch) moves() bool {
	begun, inFlight := w.Handoff.Attempts()
	moved := begun != w.begun || inFlight > 0
	w.begun = begun
	return moved
}

// check checks that this node begins attempts if deliveries are due. Held deliveries are not due.
func (w *stallWatch) check(ctx context.Context) error {
	overdue := false
	if !w.moves() {
		var err error
		if overdue, err = query.Overdue(ctx, w.db.Pool); err != nil {
			return err
		}
	}
	if w.idle++; !overdue {
		w.idle = 0
	}
	stalled := time.Duration(w.idle) * w.interval
	if before := time.Duration(w.stalled.Swap(int64(stalled))); stalled >= StalledTooLong && before < StalledTooLong {
		w.log.Error("deliveries are due and this node begins no attempt; restart it", "for", stalled)
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
	// FetchLag is how long due jobs wait until this node fetches them; near 1 s publishes wait.
	FetchLag time.Duration
}

// Stats reads the counts.
func (e *Engine) Stats() Stats {
	return Stats{
		InFlight: e.runs.Active.Len(), MaxWorkers: e.runs.Handoff.Workers(), OpenCalls: e.deliverer.endpoint.OpenCalls(),
		Stalled: time.Duration(e.stalls.stalled.Load()), FetchLag: e.runs.Backpressure.Lag(),
	}
}
