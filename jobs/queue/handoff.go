package queue

import (
	"sync"
	"time"
)

// Handoff gives the deliveries of this node's publishes to its free workers. Fetching and loading them would take two
// more transactions, a third of PostgreSQL's time.
type Handoff struct {
	workers int
	active  *JobSet
	wake    *Wake
	ready   chan struct{} // works wait

	mu       sync.Mutex
	open     bool
	waiting  []*Work
	reserved int
	busy     int   // workers that make an attempt
	begun    int64 // attempts since the process began
	// The database is queried for jobs when a fetch was requested, when it had more jobs than workers were free, and once
	// per poll.
	poll, idlePoll time.Duration
	queriedAt      time.Time
	backlog        bool
	busyAt         time.Time // when the fetchers were last woken, or a fetch found a job
}

// idleAfter is longer than a job may be stored ahead of its time, which only the poll finds.
const idleAfter = 6 * time.Second

// NewHandoff makes the handoff of a node with this many workers. active gets its jobs.
func NewHandoff(workers int, active *JobSet, wake *Wake) *Handoff {
	return &Handoff{workers: workers, active: active, wake: wake, ready: make(chan struct{}, 1)}
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

// Close takes no more jobs, and returns those that did not begin. A second call returns those that came with
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

// Drop forgets the works that wait. Their jobs are active no longer.
func (h *Handoff) Drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, local := range h.waiting {
		h.active.Remove(local.Job.JobID)
		local.Release()
	}
	h.waiting = nil
}

// Reserve reserves workers for up to n jobs: half of the free ones, so that other jobs are still fetched, and none
// while jobs wait in the database, because these are first.
func (h *Handoff) Reserve(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open || h.backlog {
		return 0
	}
	n = max(min(n, h.free()/2), 0)
	h.reserved += n
	return n
}

// free is how many workers are neither busy nor reserved.
func (h *Handoff) free() int { return h.workers - h.busy - len(h.waiting) - h.reserved }

// Put ends a reservation with the jobs that were committed, which may be fewer. They are active from now on.
func (h *Handoff) Put(reserved int, jobs []*Work) {
	for _, w := range jobs {
		h.active.Add(w.Job.JobID)
	}
	h.mu.Lock()
	h.reserved -= reserved
	h.waiting = append(h.waiting, jobs...)
	h.mu.Unlock()
	if len(jobs) > 0 {
		Signal(h.ready)
	}
}

// Ready receives while works wait.
func (h *Handoff) Ready() <-chan struct{} { return h.ready }

// Take returns the works that wait, and makes as many workers busy.
func (h *Handoff) Take() []*Work {
	h.mu.Lock()
	defer h.mu.Unlock()
	works := h.waiting
	h.waiting = nil
	h.busy += len(works)
	h.begun += int64(len(works))
	return works
}

// Begin makes a worker busy with a job that was fetched.
func (h *Handoff) Begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy++
	h.begun++
}

// End makes a worker free, after Begin or Take. If the database has more jobs, it requests a fetch: River does so only
// if all of its own workers were busy.
func (h *Handoff) End() {
	h.mu.Lock()
	h.busy--
	more := h.backlog
	h.mu.Unlock()
	if more {
		h.wake.Request(DeliverQueue)
	}
}

// Attempts counts the attempts that have begun since the process began, and those in progress.
func (h *Handoff) Attempts() (begun int64, inProgress int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun, h.busy
}

// Query returns how many jobs, at most limit, the database is queried for now; 0 = it is not.
func (h *Handoff) Query(limit int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, requested := time.Now(), h.wake.fetchRequested.Load()
	if requested {
		h.busyAt = now
	}
	n := min(limit, h.free())
	if !requested && !h.backlog && h.idle(now) {
		return 0
	}
	if n <= 0 {
		h.backlog = true // End requests a fetch
		return 0
	}
	h.wake.fetchRequested.Store(false)
	h.queriedAt = now
	return n
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
