package delivery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/postgres"
)

const (
	// One statement for at most this many results: 200 was the fastest of 50, 200 and 1,000 (17.0k, 18.5k, 16.9k/s).
	flushResults = 200
	// flushDeliveries bounds a statement too: a batch may have 5,000 deliveries.
	flushDeliveries = 5000

	recordTimeout  = 15 * time.Second
	recordMinPause = 50 * time.Millisecond
	recordMaxPause = 2 * time.Second
)

// Failpoints of recording: before the transaction, in it, and after its commit; and a result that ends in a dead
// letter.
const (
	PointRecordBefore = "record.before"
	PointRecordInside = "record.inside"
	PointRecordAfter  = "record.after"
	PointDeadLetter   = "dead-letter"
)

// Recorder records results in groups (T3). A flush that fails is repeated while the process lives: the endpoint's
// response exists only here, and River would run the same job row twice if it were given the failure.
type Recorder struct {
	RecorderParts
	postgres.Failpoint
	queue *postgres.Batcher[*recording]
	// blocked are the results whose rows another transaction has locked, see blocked.go. Only the flush uses it.
	blocked map[*recording]bool
	failing failing

	flushes, flushTime *postgres.Histogram
	failures           atomic.Int64

	mu      sync.Mutex
	healthy chan struct{} // closed while flushes succeed
}

// RecorderParts are what a Recorder needs. Gate is nil on a node that makes no attempts. TimeScale is
// Options.TimeScale.
type RecorderParts struct {
	DB        *postgres.DB
	Cache     *catalog.Cache
	IDs       *postgres.IDs
	Traffic   *queue.Traffic
	Gate      *queue.Gate
	Notifier  *queue.Notifier
	Disk      *postgres.Disk
	Log       *slog.Logger
	Node      string
	TimeScale int
}

// RecorderCounters are what a Recorder has done since its process began.
type RecorderCounters struct {
	// Flushes are the transactions, by how many results each had; Time by how long it took until they were stored, in
	// nanoseconds, repeats included.
	Flushes, Time postgres.Distribution
	// Failures are the flushes that failed and were tried again; Waiting the results that wait.
	Failures, Waiting int64
}

// recording is a result that waits to be recorded.
type recording struct {
	Result
	gone   bool  // the job row was gone; set before done is closed
	failed error // set before done is closed
	done   chan struct{}
}

// NewRecorder makes a recorder; its Run records.
func NewRecorder(parts RecorderParts, fail postgres.Failpoint) *Recorder {
	const ms = int64(time.Millisecond)
	r := &Recorder{
		RecorderParts: parts, Failpoint: fail, queue: postgres.NewBatcher[*recording](), blocked: map[*recording]bool{},
		flushes:   postgres.NewHistogram(1, 2, 5, 10, 20, 50, 100, flushResults),
		flushTime: postgres.NewHistogram(ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 1000*ms, 5000*ms),
		healthy:   make(chan struct{}),
	}
	close(r.healthy)
	return r
}

// RecorderCounters reads the counters. It does not query the database.
func (r *Recorder) RecorderCounters() RecorderCounters {
	return RecorderCounters{r.flushes.Read(), r.flushTime.Read(), r.failures.Load(), int64(r.queue.Len())}
}

// Record stores a result and returns when it is stored, or when ctx ends: then it may still become stored. If the job
// row does not exist any more, nothing is recorded; for a batch, whose turn may go on after a result, Record then
// returns ErrJobGone. ErrPoison: PostgreSQL rejects the result even without the response, and the attempt must be made
// again.
func (r *Recorder) Record(ctx context.Context, result Result) error {
	req := &recording{Result: result, done: make(chan struct{})}
	r.identify(req)
	r.queue.Add(req)
	select {
	case <-req.done:
		if req.gone && req.failed == nil && req.BatchID != 0 {
			return req.JobToken.Gone()
		}
		return req.failed
	case <-ctx.Done():
		return fmt.Errorf("record the attempt: %w", ctx.Err())
	}
}

// identify gives each dead letter its id.
func (r *Recorder) identify(req *recording) {
	if req.BatchID == 0 && req.Verdict.Action == policy.DeadLetter {
		req.Fates = []Fate{{DeliveryID: req.DeliveryID, Verdict: req.Verdict}}
	}
	for i := range req.Fates {
		if req.Fates[i].Verdict.Action == policy.DeadLetter {
			r.Reach(PointDeadLetter)
			req.Fates[i].deadLetter = r.IDs.One()
		}
	}
}

// WaitRecording waits while recording fails: a node that cannot record results must not start new requests.
func (r *Recorder) WaitRecording(ctx context.Context) error {
	select {
	case <-r.health():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until results can be recorded again: %w", ctx.Err())
	}
}

func (r *Recorder) health() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.healthy
}

func (r *Recorder) setHealthy(healthy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.healthy: // was healthy
		if !healthy {
			r.healthy = make(chan struct{})
		}
	default:
		if healthy {
			close(r.healthy)
		}
	}
}

// Run records until ctx ends and nothing waits. What is blocked is tried once more at the end; the node that reclaims
// this one's jobs makes the other attempts again.
func (r *Recorder) Run(ctx context.Context) {
	r.queue.Run(ctx, fitsFlush, func(group []*recording) { r.flush(ctx, group) })
	if len(r.blocked) > 0 {
		r.flush(ctx, slices.Collect(maps.Keys(r.blocked)))
	}
}

func fitsFlush() func(*recording) bool {
	n, deliveries := 0, 0
	return func(q *recording) bool {
		n++
		deliveries += max(q.Events, len(q.Fates), 1)
		return n <= flushResults && (n == 1 || deliveries <= flushDeliveries)
	}
}

// flush repeats until the group is recorded or the process stops. Repeating is safe: a result whose job row is gone
// records nothing.
func (r *Recorder) flush(ctx context.Context, group []*recording) {
	// In the order of ids, so that two transactions seldom wait for one another in a circle; reclaiming and canceling
	// skip what is locked and never wait.
	slices.SortFunc(group, func(a, b *recording) int { return cmp.Compare(a.JobID, b.JobID) })
	began, pause := time.Now(), recordMinPause
	r.Reach(PointRecordBefore)
	if len(r.blocked) > 0 {
		group = r.setBlockedAside(group)
	}
	for len(group) > 0 {
		err := postgres.Isolate(group, r.write, r.blame)
		if err == nil {
			break
		}
		if postgres.IsTransient(err) && ctx.Err() == nil {
			continue // rolled back by PostgreSQL to let another transaction through: repeat at once
		}
		if postgres.IsLocked(err) {
			free := r.setBlockedAside(group)
			some := len(free) < len(group)
			if group = free; some {
				continue
			}
		}
		r.setHealthy(false)
		r.failures.Add(1)
		r.Disk.Noticed(err)
		r.Log.Warn("results could not be recorded and are kept in memory; no new requests until they are recorded",
			"results", len(group), "retry_in", pause, "error", err)
		if !postgres.WaitJittered(ctx, pause) {
			return
		}
		pause = min(pause*2, recordMaxPause)
	}
	r.setHealthy(true)
	if len(group) > 0 {
		r.flushes.Observe(int64(len(group)))
		r.flushTime.Observe(int64(time.Since(began)))
	}
	r.recorded(group)
}

// recorded lets the callers of Record return.
func (r *Recorder) recorded(group []*recording) {
	r.Reach(PointRecordAfter)
	for _, req := range group {
		r.Traffic.AddOne(req.SubscriptionID, -req.deliveries())
		if r.blocked[req] {
			delete(r.blocked, req)
			r.block(req, -1)
		}
		close(req.done)
	}
}

// blame records a result that PostgreSQL rejects once more, without the bytes that the endpoint sent.
func (r *Recorder) blame(req *recording, err error) error {
	r.Log.Error("a response could not be stored and is left out",
		"delivery", req.DeliveryID, "batch", req.BatchID, "subscription", req.SubscriptionID, "error", err)
	req.RequestHeaders, req.ResponseHeaders = nil, nil
	req.ResponseExcerpt = []byte("(postrider: the response could not be stored)")
	req.Error, req.Verdict.Why = "", policy.Why{}
	err = r.write([]*recording{req})
	if !postgres.IsPoison(err) {
		return err // recorded, or an outage: the group is tried again
	}
	r.Log.Error("a result could not be recorded; its job will be run again",
		"delivery", req.DeliveryID, "batch", req.BatchID, "error", err)
	req.failed = fmt.Errorf("%w: %w", postgres.ErrPoison, err)
	return nil
}

// write records a group, and what it shows about the health of endpoints, in one transaction.
func (r *Recorder) write(group []*recording) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	r.Reach(PointRecordInside)
	var found []*healthSignal
	for _, req := range group {
		if e := r.evidenceOf(&req.Result); e != nil {
			found = append(found, e)
		}
	}
	recorded, err := r.recordGroup(ctx, group, found)
	if err != nil {
		return fmt.Errorf("record %d results: %w", len(group), err)
	}
	for _, req := range group {
		req.gone = !slices.Contains(recorded, req.JobID)
	}
	// A retry that is due within the poll interval is worth a wake-up.
	if slices.ContainsFunc(group, func(q *recording) bool { return q.BatchID == 0 && q.Verdict.Action == policy.Retry }) {
		r.Notifier.RequestDeliveries()
	}
	return nil
}

// recordGroup returns the jobs whose results were recorded; the rows of the others were gone. A group that shows
// nothing about endpoints takes one round trip.
func (r *Recorder) recordGroup(
	ctx context.Context, group []*recording, found []*healthSignal,
) (recorded []int64, err error) {
	if len(found) > 0 {
		return r.recordWithEvidence(ctx, group, found)
	}
	err = r.DB.WriteKept(ctx, postgres.KeepPlanBriefly, func(batch *pgx.Batch) { r.queueGroup(batch, group, &recorded) })
	return recorded, err
}

// recordWithEvidence uses only results whose job row existed: a node that was thought dead is no evidence.
func (r *Recorder) recordWithEvidence(
	ctx context.Context, group []*recording, found []*healthSignal,
) (recorded []int64, err error) {
	err = pgx.BeginFunc(ctx, r.DB, func(tx pgx.Tx) error {
		standings, now := map[string]*probation{}, time.Time{}
		batch := &pgx.Batch{}
		batch.Queue(r.DB.Keeping(postgres.KeepPlanBriefly))
		r.queueGroup(batch, group, &recorded)
		queueStandings(batch, found, standings, &now)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		heard := slices.DeleteFunc(found, func(e *healthSignal) bool { return !slices.Contains(recorded, e.jobID) })
		weigh(standings, heard, now)
		if err := r.writeStandings(ctx, tx, standings); err != nil {
			return err
		}
		r.failing.forget(heard, standings)
		return nil
	})
	return recorded, err
}
