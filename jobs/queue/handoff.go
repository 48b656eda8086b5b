package queue

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Handoff gives the deliveries of this node's publishes to its free workers. River runs the jobs as if it had fetched
// them. Fetching and loading them would take two more transactions, a third of PostgreSQL's time.
type Handoff struct {
	workers int
	active  *JobSet
	wake    *Wake

	mu       sync.Mutex
	open     bool
	waiting  []*Work
	started  map[int64]*Work // by job: given to River and not begun
	reserved int
	// The database is queried for jobs when a wake-up was not for local jobs alone, when it had more jobs than workers
	// were free, and once per poll.
	poll, idlePoll time.Duration
	queriedAt      time.Time
	backlog        bool
	busyAt         time.Time // when the fetchers were last woken, or a fetch found a job
}

// idleAfter is longer than a job may be stored ahead of its time, which only the poll finds.
const idleAfter = 6 * time.Second

// NewHandoff makes the handoff of a node with this many workers, of which the active jobs are busy.
func NewHandoff(workers int, active *JobSet, wake *Wake) *Handoff {
	return &Handoff{workers: workers, active: active, wake: wake, started: map[int64]*Work{}}
}

// Workers is how many jobs this node works on at once.
func (h *Handoff) Workers() int { return h.workers }

// Open begins to take jobs. The database is queried for others each poll, and on an idle node each idlePoll.
func (h *Handoff) Open(poll, idlePoll time.Duration) {
	h.wake.Request(DeliverQueue)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.poll, h.idlePoll = true, poll, idlePoll
}

// Close takes no more jobs, and returns those that were not given to River. A second call returns those that came with
// reservations meanwhile.
func (h *Handoff) Close() (left []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
	for _, local := range h.waiting {
		left = append(left, local.Job.JobID)
		local.Release()
	}
	h.waiting = nil
	return left
}

// Reserve reserves workers for up to n jobs: half of the free ones, so that other jobs are still fetched, and none
// while jobs wait in the database, because these are first.
func (h *Handoff) Reserve(n int) int {
	busy := h.active.Len()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open || h.backlog {
		return 0
	}
	free := h.workers - busy - len(h.waiting) - len(h.started) - h.reserved
	n = max(min(n, free/2), 0)
	h.reserved += n
	return n
}

// Give ends a reservation with the jobs that were committed, which may be fewer.
func (h *Handoff) Give(reserved int, jobs []*Work) {
	h.mu.Lock()
	h.reserved -= reserved
	h.waiting = append(h.waiting, jobs...)
	h.mu.Unlock()
	if len(jobs) > 0 {
		h.wake.requestLocal()
	}
}

// Next returns up to limit jobs to run, and whether to query the database for more.
func (h *Handoff) Next(limit int) (jobs []*Work, query bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(limit, len(h.waiting))
	for _, local := range h.waiting[:n] {
		h.started[local.Job.JobID] = local
		jobs = append(jobs, local)
	}
	if h.waiting = h.waiting[n:]; len(h.waiting) == 0 {
		h.waiting = nil
	}
	now, requested := time.Now(), h.wake.fetchRequested.Load()
	if requested || n > 0 {
		h.busyAt = now
	}
	query = n < limit && (requested || h.backlog || !h.idle(now) && (n == 0 || now.Sub(h.queriedAt) >= h.poll))
	if query {
		h.wake.fetchRequested.Store(false)
		h.queriedAt = now
	}
	return jobs, query
}

// idle reports that the database was queried a moment ago, and that only a job whose notification was lost can be due.
func (h *Handoff) idle(now time.Time) bool {
	return now.Sub(h.busyAt) > idleAfter && now.Sub(h.queriedAt) < h.idlePoll-h.poll/2
}

// Fetched reports how many of the requested jobs the database had. If it had all, it may have more.
func (h *Handoff) Fetched(n, requested int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backlog = n == requested; n > 0 {
		h.busyAt = time.Now()
	}
}

// Work returns the delivery of a local job that begins; nil if the delivery must be loaded.
func (h *Handoff) Work(job int64) *Work {
	local, ok := h.remove(job)
	switch {
	case !ok:
		return nil
	case !local.Fresh():
		local.Release()
		return nil
	}
	return local
}

// Forget releases a local job that has ended without its Work.
func (h *Handoff) Forget(job int64) {
	if local, ok := h.remove(job); ok {
		local.Release()
	}
}

func (h *Handoff) remove(job int64) (local *Work, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	local, ok = h.started[job]
	delete(h.started, job)
	return local, ok
}

// NotBegun lists the jobs that belong to this node and have not begun.
func (h *Handoff) NotBegun() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := slices.Collect(maps.Keys(h.started))
	for _, local := range h.waiting {
		ids = append(ids, local.Job.JobID)
	}
	return ids
}

// LocalJob is the work's job as a publish of this node stored it: running here.
func (w *Work) LocalJob(node string) Job {
	at := w.Job.CreatedAt
	return Job{
		ID: w.Job.JobID, Attempt: 1, MaxAttempts: 1000, Kind: DeliverKind, Queue: DeliverQueue, Priority: 1,
		Args:     fmt.Appendf(nil, `{"d":%d,"s":%d,"n":1}`, w.Members[0].DeliveryID, w.SubscriptionID),
		Metadata: []byte("{}"), CreatedAt: at, ScheduledAt: at, AttemptedAt: at, AttemptedBy: []string{node},
	}
}
