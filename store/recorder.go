package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"postrider/policy"

	"github.com/google/uuid"
)

// Verdicts that no policy gives.
const (
	// Cancel ends a delivery whose event subscription was deleted: neither delivered nor given up.
	Cancel policy.VerdictAction = "cancel"
	// Hold takes the job away and lets the delivery wait; Verdict.Reason is the hold. Verdict.At is its next turn, if not the same as before.
	Hold policy.VerdictAction = "hold"
)

// Result is what became of one delivery attempt, or of a delivery's turn that ended without one (Number 0).
type Result struct {
	JobToken       // nothing is recorded unless this row is still there
	DeliveryID     int64
	BatchID        int64     // instead of DeliveryID where a batch was sent
	SystemID       uuid.UUID // the delivery's event
	BatchMade      time.Time // Batch.CreatedAt
	SubscriptionID int64
	RetryPolicy    string

	Number    int // of this attempt, 1 = first; 0 = no request was made
	Events    int // of a batch: how many events the request carried
	Reruns    int // times a crash interrupted this attempt before
	DueAt     time.Time
	LastHold  string // the hold that it had to wait for since then; "" for none
	StartedAt time.Time
	Duration  time.Duration
	Timings   Timings

	Status          int              // 0 = no answer
	Err             policy.ErrorKind // why there is none
	Outcome         policy.Outcome
	Error           string
	RequestHeaders  []byte // without secrets; nil = not kept
	ResponseHeaders []byte
	ResponseExcerpt []byte

	Verdict policy.Verdict
	// Rest is the Work's.
	Rest Rest
	// FirstEvent is the system id of the event that the request carried, of the first one in a batch. A failed request counts
	// as a failure of this event alone, see policy.AfterFailure.
	FirstEvent uuid.UUID
}

// Timings are the durations of a request's phases; zero where there was none, as on a reused connection. FirstByte is from the
// moment the connection was ready.
type Timings struct{ DNS, Connect, TLS, FirstByte time.Duration }

type recordRequest struct {
	Result
	deadLetterID uuid.UUID
	failed       error // set before done is closed
	done         chan struct{}
}

func (q *recordRequest) single() *recordRequest { return q }

// owner is the id of what was sent.
func (r *Result) owner() int64 {
	if r.BatchID != 0 {
		return r.BatchID
	}
	return r.DeliveryID
}

// deliveries is how many were queued for what has ended; a batch that members leave goes on.
func (r *Result) deliveries() int {
	switch {
	case r.BatchID == 0:
		return 1
	case r.Verdict.Action == Leave:
		return 0
	default:
		return r.Events
	}
}

// recordable is a result that waits to be recorded: a delivery's, or a batch's with those of its members.
type recordable interface {
	single() *recordRequest
	// told learns the jobs of the results that were recorded: the others' rows were gone.
	told(jobs []int64)
	// failures appends the deliveries that the result may dead-letter or drop, or the batch that all of whose members it may.
	failures(deliveries, batches []int64) (more, moreBatches []int64)
}

const (
	// One statement for at most this many results: 200 was the fastest of 50, 200 and 1,000 (17.0k, 18.5k, 16.9k/s).
	flushResults = 200

	recordTimeout  = 15 * time.Second
	recordMinPause = 50 * time.Millisecond
	recordMaxPause = 2 * time.Second
)

// recorder records results in groups (T3). A flush that fails is repeated for as long as the process lives: the answer
// of an endpoint exists only here, and handing the failure to River would run the same job row twice.
//
// Results of deliveries and of batches have a recorder each, for each has its own statement.
type recorder[T recordable] struct {
	store     *Store
	queue     *batcher[T]
	aside     aside[T]
	fits      func() func(T) bool
	settings  string // for its transaction, standings included: those go by key, too
	lock      string // a statement that locks the jobs before; "" for none
	statement func(group []T) string
	columns   func(node string, group []T) []any

	mu      sync.Mutex
	healthy chan struct{} // closed while flushes succeed
}

func newRecorder[T recordable](s *Store, fits func() func(T) bool, settings string, statement func([]T) string, columns func(string, []T) []any) *recorder[T] {
	r := &recorder[T]{store: s, queue: newBatcher[T](), aside: aside[T]{wake: make(chan struct{}, 1)}, fits: fits, settings: settings, statement: statement, columns: columns, healthy: make(chan struct{})}
	close(r.healthy)
	return r
}

// Record stores a result and returns when it is stored, or when ctx ends: then it may still become stored. ErrPoison:
// PostgreSQL refuses it even without the response, and the attempt must be made again.
func (s *Store) Record(ctx context.Context, result Result) error {
	req := &recordRequest{Result: result, done: make(chan struct{})}
	if result.Verdict.Action == policy.DeadLetter {
		s.Reach(PointDeadLetter)
		req.deadLetterID = s.ids.One()
	}
	s.recorder.queue.add(req)
	select {
	case <-req.done:
		return req.failed
	case <-ctx.Done():
		return fmt.Errorf("record the attempt: %w", ctx.Err())
	}
}

// WaitRecording waits while recording fails: a node that cannot write down what it hears must not start new requests.
func (s *Store) WaitRecording(ctx context.Context) error {
	for _, healthy := range []<-chan struct{}{s.recorder.gate(), s.batchRecorder.gate()} {
		select {
		case <-healthy:
		case <-ctx.Done():
			return fmt.Errorf("wait until results can be recorded again: %w", ctx.Err())
		}
	}
	return nil
}

func (r *recorder[T]) gate() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.healthy
}

func (r *recorder[T]) setHealthy(healthy bool) {
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

func (r *recorder[T]) run(ctx context.Context) {
	var patient sync.WaitGroup
	patient.Go(func() { r.recordAside(ctx) })
	r.queue.run(ctx, r.fits, func(group []T) { r.flush(ctx, group) })
	patient.Wait()
}

func fitsFlush() func(*recordRequest) bool {
	n := 0
	return func(*recordRequest) bool {
		n++
		return n <= flushResults
	}
}

// Failpoints of recording: before the transaction, in it, and after its commit; and a result that ends in a dead letter.
const (
	PointRecordBefore = "record.before"
	PointRecordInside = "record.inside"
	PointRecordAfter  = "record.after"
	PointDeadLetter   = "dead-letter"
)

// flush repeats until the group is recorded or the process stops. Repeating is safe: a result whose job row is gone
// records nothing.
func (r *recorder[T]) flush(ctx context.Context, group []T) {
	// In the order of ids, so that two transactions seldom wait for one another in a circle; reclaiming and canceling
	// skip what is locked and never wait.
	slices.SortFunc(group, byJob)
	began, pause := time.Now(), recordMinPause
	r.store.Reach(PointRecordBefore)
	if ctx.Err() == nil && r.aside.any() { // at the end nobody comes back to what is aside
		group, _ = r.setAside(ctx, group)
	}
	for len(group) > 0 {
		err := isolate(group, r.write, r.blame)
		if err == nil {
			break
		}
		if isTransient(err) && ctx.Err() == nil {
			continue // rolled back by PostgreSQL to let another through: at once again
		}
		if isLocked(err) && ctx.Err() == nil {
			free, some := r.setAside(ctx, group)
			if group = free; some {
				continue
			}
		}
		r.setHealthy(false)
		r.store.stats.recordFailures.Add(1)
		r.store.Noticed(err)
		r.store.log.Warn("results could not be recorded and are kept in memory; no new requests until they are", "results", len(group), "retry_in", pause, "error", err)
		if !waitAbout(ctx, pause) {
			return
		}
		pause = min(pause*2, recordMaxPause)
	}
	r.setHealthy(true)
	if len(group) > 0 {
		r.store.stats.recorded(len(group), time.Since(began))
	}
	r.recorded(group)
}

// recorded lets those go on who wait.
func (r *recorder[T]) recorded(group []T) {
	r.store.Reach(PointRecordAfter)
	r.store.Traffic.finished(column(group, T.single)...)
	for _, req := range group {
		close(req.single().done)
	}
}

func byJob[T recordable](a, b T) int { return cmp.Compare(a.single().JobID, b.single().JobID) }

// blame records a result that PostgreSQL refuses once more, without the bytes that strangers sent.
func (r *recorder[T]) blame(blamed T, err error) error {
	req := blamed.single()
	r.store.log.Error("a response could not be stored and is left out", "delivery", req.DeliveryID, "batch", req.BatchID, "subscription", req.SubscriptionID, "error", err)
	req.RequestHeaders, req.ResponseHeaders, req.ResponseExcerpt = nil, nil, []byte("(postrider: the response could not be stored)")
	req.Error, req.Verdict.Why = "", policy.Why{}
	err = r.write([]T{blamed})
	if !isPoison(err) {
		return err // recorded, or an outage: the group is tried again
	}
	r.store.log.Error("a result could not be recorded; its job will be run again", "delivery", req.DeliveryID, "batch", req.BatchID, "error", err)
	req.failed = fmt.Errorf("%w: %w", ErrPoison, err)
	return nil
}
