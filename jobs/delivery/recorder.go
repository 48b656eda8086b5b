package delivery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
	"postrider/policy"
)

const (
	// One statement for at most this many results: 200 was the fastest of 50, 200 and 1,000 (17.0k, 18.5k, 16.9k/s).
	flushResults = 200
	// flushDeliveries bounds a statement too: a batch may have 5,000 deliveries.
	flushDeliveries = 5000

	// recordWait is how long results wait for others.
	recordWait = 50 * time.Millisecond

	recordTimeout  = 15 * time.Second
	recordMinPause = 50 * time.Millisecond
	recordMaxPause = 2 * time.Second

	// blockedPause is the time after which results whose rows another transaction has locked are tried again.
	blockedPause = 250 * time.Millisecond
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
// response exists only here, and River would run the same job row twice if it received the failure.
type Recorder struct {
	RecorderParts
	queue *postgres.Batcher[*recording]
	// blocked are the results whose rows another transaction has locked, see deferBlocked. Only the flush uses it.
	blocked map[*recording]bool
	failing sync.Map // keys of probations, see rememberFailing

	flushes, flushTime *postgres.Histogram
	failures           atomic.Int64

	mu        sync.Mutex
	recovered chan struct{} // closed when flushes succeed again; nil while they succeed
}

// RecorderParts are what a Recorder needs. Gate is nil, and MaxWorkers is 0, on a node that makes no attempts.
// TimeScale is Options.TimeScale.
type RecorderParts struct {
	DB        *postgres.DB
	Cache     *catalog.Cache
	IDs       *postgres.IDs
	Traffic   *queue.Traffic
	Gate      *queue.Gate
	Notifier  *queue.Notifier
	Commits   *postgres.Commits
	Log       *slog.Logger
	Node      string
	TimeScale int
	postgres.Failpoint

	MaxWorkers int
}

// RecorderCounters count since the process began.
type RecorderCounters struct {
	// Flushes are the transactions, by how many results each had. Time is how long each took, in nanoseconds, repeats
	// included.
	Flushes, Time postgres.Distribution
	// Failures are the flushes that failed and were tried again. Waiting are the results that wait.
	Failures, Waiting int64
}

// recording is a result that waits to be recorded.
type recording struct {
	Attempt
	// deleted: a try has deleted the job row, or may have, because its connection was lost at COMMIT.
	deleted bool
	gone    bool  // the job row was gone before the first try; set before done is closed
	failed  error // set before done is closed
	done    chan struct{}
}

// NewRecorder makes a recorder; its Run records.
func NewRecorder(parts RecorderParts) *Recorder {
	const ms = int64(time.Millisecond)
	return &Recorder{
		RecorderParts: parts, blocked: map[*recording]bool{},
		// Waiting delays only the record of a result, not its delivery. Its worker waits, so a group waits for a quarter of
		// the workers at most.
		queue: postgres.NewGatheringBatcher[*recording](postgres.Gathering{
			Enough: min(flushResults/2, parts.MaxWorkers/4), Step: recordWait, Longest: recordWait,
		}),
		flushes:   postgres.NewHistogram(1, 2, 5, 10, 20, 50, 100, flushResults),
		flushTime: postgres.NewHistogram(ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 1000*ms, 5000*ms),
	}
}

// RecorderCounters reads the counters. It does not query the database.
func (r *Recorder) RecorderCounters() RecorderCounters {
	return RecorderCounters{r.flushes.Read(), r.flushTime.Read(), r.failures.Load(), int64(r.queue.Len())}
}

// Record stores a result. It returns when the result is stored, or when ctx ends: then it may still become stored. If
// the job row is gone, nothing is recorded. Record then returns ErrJobGone for a batch, whose run may continue after a
// result, and for a hold, whose permits may be returned. ErrPoison: PostgreSQL rejects the result even without the
// response, and the attempt must be made again.
func (r *Recorder) Record(ctx context.Context, result Attempt) error {
	req := &recording{Attempt: result, done: make(chan struct{})}
	if req.BatchID == 0 && req.Verdict.Action == policy.DeadLetter {
		req.Fates = []Fate{{DeliveryID: req.DeliveryID, Verdict: req.Verdict}}
	}
	for i := range req.Fates {
		if req.Fates[i].Verdict.Action == policy.DeadLetter {
			r.Reach(PointDeadLetter)
			req.Fates[i].deadLetter = r.IDs.One()
		}
	}
	r.queue.Add(req)
	select {
	case <-req.done:
		if req.gone && req.failed == nil && (req.BatchID != 0 || req.Verdict.Action == Hold) {
			return req.JobToken.Gone()
		}
		return req.failed
	case <-ctx.Done():
		return notRecorded(ctx)
	}
}

// RecordDecision is Record for a run that made no request.
func (r *Recorder) RecordDecision(ctx context.Context, decision Decision) error {
	return r.Record(ctx, Attempt{Decision: decision})
}

// WaitRecording waits while recording fails: a node that cannot record results must not start new requests.
func (r *Recorder) WaitRecording(ctx context.Context) error {
	r.mu.Lock()
	recovered := r.recovered
	r.mu.Unlock()
	if recovered == nil {
		return nil
	}
	select {
	case <-recovered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until results can be recorded again: %w", ctx.Err())
	}
}

func (r *Recorder) setHealthy(healthy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if healthy && r.recovered != nil {
		close(r.recovered)
		r.recovered = nil
	} else if !healthy && r.recovered == nil {
		r.recovered = make(chan struct{})
	}
}

// Run records until ctx ends and nothing waits. Then it tries each result once more. The others fail: the node that
// reclaims this one's jobs repeats their attempts.
func (r *Recorder) Run(ctx context.Context) {
	r.queue.Run(ctx, fitsFlush, func(group []*recording) { r.flush(ctx, group) })
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
	// In the order of ids, so that transactions seldom deadlock. Reclaiming and canceling skip locked rows.
	slices.SortFunc(group, func(a, b *recording) int { return cmp.Compare(a.JobID, b.JobID) })
	began, pause := time.Now(), recordMinPause
	r.Reach(PointRecordBefore)
	if len(r.blocked) > 0 {
		group = r.deferBlocked(ctx, group)
	}
	for len(group) > 0 {
		err := postgres.Isolate(group, r.write, r.reject)
		if err == nil {
			break
		}
		if postgres.IsTransient(err) && ctx.Err() == nil {
			continue // PostgreSQL rolled it back in favor of another transaction
		}
		if postgres.IsLocked(err) {
			free := r.deferBlocked(ctx, group)
			some := len(free) < len(group)
			if group = free; some {
				continue
			}
		}
		if postgres.IsOutage(err) && !postgres.IsLocked(err) { // perhaps lost at COMMIT
			for _, req := range group {
				req.deleted = req.Verdict.Action != Leave
			}
		}
		r.setHealthy(false)
		r.failures.Add(1)
		r.Commits.Noted(postgres.ResultCommits, err)
		r.Log.Warn("results could not be recorded and are kept in memory; no new requests until they are recorded",
			"results", len(group), "retry_in", pause, "error", err)
		if !postgres.WaitJittered(ctx, pause) {
			r.abandon(ctx, group)
			return
		}
		pause = min(pause*2, recordMaxPause)
	}
	r.setHealthy(true)
	r.Commits.Noted(postgres.ResultCommits, nil)
	if len(group) > 0 {
		r.flushes.Observe(int64(len(group)))
		r.flushTime.Observe(int64(time.Since(began)))
	}
	r.Reach(PointRecordAfter)
	r.respond(group)
}

// abandon fails results that this node cannot record before it stops.
func (r *Recorder) abandon(ctx context.Context, group []*recording) {
	for _, req := range group {
		req.failed = notRecorded(ctx)
	}
	r.respond(group)
}

func notRecorded(ctx context.Context) error { return fmt.Errorf("record the attempt: %w", ctx.Err()) }

// respond lets the callers of Record return.
func (r *Recorder) respond(group []*recording) {
	for _, req := range group {
		r.Traffic.AddOne(req.SubscriptionID, -req.deliveries())
		if r.blocked[req] {
			delete(r.blocked, req)
			r.Gate.Block(req.SubscriptionID, -1)
		}
		close(req.done)
	}
}

// deferBlocked returns the results of a group whose rows can be locked now, or the group if that cannot be checked. The
// others return to the queue after blockedPause: a user who cancels a delivery in psql holds its rows until the
// transaction ends. Until then their attempts count as in progress, and everything else is recorded.
//
// While any result is blocked, each group is checked before it is recorded: a transaction that holds one row may hold
// more, and finding each by waiting for it costs half a second.
func (r *Recorder) deferBlocked(ctx context.Context, group []*recording) (free []*recording) {
	jobs, err := r.findBlocked(group)
	if err != nil {
		return group
	}
	var blocked []*recording
	added := 0
	for _, req := range group {
		if !slices.Contains(jobs, req.JobID) {
			free = append(free, req)
			continue
		}
		if blocked = append(blocked, req); !r.blocked[req] {
			r.blocked[req] = true
			r.Gate.Block(req.SubscriptionID, 1)
			added++
		}
	}
	if added > 0 {
		first := blocked[0]
		r.Log.Info("an open transaction holds rows of some results; they are recorded when it has ended",
			"results", added, "delivery", first.DeliveryID, "batch", first.BatchID, "subscription", first.SubscriptionID)
	}
	if ctx.Err() != nil {
		r.abandon(ctx, blocked)
	} else if len(blocked) > 0 {
		r.queue.AddLater(blockedPause, blocked...)
	}
	return free
}

var blockedStatement = sqlFile("blocked", "jobs", "deliveries", "batches", "probations")

// findBlocked returns the jobs of the results whose rows another transaction has locked.
func (r *Recorder) findBlocked(group []*recording) (jobs []int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	rows, probations := slices.Clone(group), make([][]byte, len(group))
	for _, req := range group {
		if !r.changesProbation(req) {
			continue
		}
		for i := range req.Probations {
			rows, probations = append(rows, req), append(probations, []byte(req.Probations[i].Key))
		}
	}
	err = r.DB.QueryRow(ctx, blockedStatement, postgres.Column(rows, func(q *recording) int64 { return q.JobID }),
		postgres.Column(rows, func(q *recording) pgtype.Int8 { return postgres.NullInt(q.DeliveryID) }),
		postgres.Column(rows, func(q *recording) pgtype.Int8 { return postgres.NullInt(q.BatchID) }), probations).Scan(&jobs)
	return jobs, err
}

// reject records a result that PostgreSQL rejects once more, without the bytes that the endpoint sent.
func (r *Recorder) reject(req *recording, err error) error {
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

// write records a group and changes probations, in one transaction. A group that changes no probation takes one round
// trip.
func (r *Recorder) write(group []*recording) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	r.Reach(PointRecordInside)
	changing := slices.DeleteFunc(slices.Clone(group), func(q *recording) bool { return !r.changesProbation(q) })
	var recorded []int64
	var err error
	if len(changing) == 0 {
		err = r.DB.WriteKept(ctx, postgres.KeepPlanBriefly,
			func(batch *pgx.Batch) { r.queueGroup(batch, group, &recorded) })
	} else {
		err = pgx.BeginFunc(ctx, r.DB, func(tx pgx.Tx) error {
			return r.writeWithProbations(ctx, tx, group, changing, &recorded)
		})
	}
	if err != nil {
		return fmt.Errorf("record %d results: %w", len(group), err)
	}
	for _, req := range group {
		found := slices.Contains(recorded, req.JobID)
		req.gone = !found && !req.deleted
		req.deleted = req.deleted || found && req.Verdict.Action != Leave // the group may be tried again, see Isolate
	}
	// A retry that is due within the poll interval needs a wake-up.
	if slices.ContainsFunc(group, func(q *recording) bool { return q.BatchID == 0 && q.Verdict.Action == policy.Retry }) {
		r.Notifier.RequestDeliveries()
	}
	return nil
}

// writeWithProbations uses only results whose job row existed: those of a node that was considered dead do not count.
func (r *Recorder) writeWithProbations(
	ctx context.Context, tx pgx.Tx, group, changing []*recording, recorded *[]int64,
) error {
	probations, now := map[string]*probation{}, time.Time{}
	batch := &pgx.Batch{}
	batch.Queue(r.DB.Keeping(postgres.KeepPlanBriefly))
	r.queueGroup(batch, group, recorded)
	queueLockedProbations(batch, changing, probations, &now)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	lost := func(q *recording) bool { return !slices.Contains(*recorded, q.JobID) }
	r.applyResults(probations, slices.DeleteFunc(slices.Clone(changing), lost), now)
	if err := r.writeProbations(ctx, tx, probations); err != nil {
		return err
	}
	r.rememberFailing(changing, probations)
	return nil
}
