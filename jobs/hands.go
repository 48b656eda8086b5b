package jobs

import (
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/store"
)

// hands take jobs over from this node's own publishes, see store.Handed. River runs them as if it had fetched them.
type hands struct {
	workers int
	busy    func() int // workers

	mu       sync.Mutex
	waiting  []store.Handed
	running  map[int64]store.Handed // by job: given to River, and not begun
	promised int
	closed   bool
	// The database is asked for jobs when something else than a handover woke the fetchers, when it had more than could be taken, and
	// as often as is polled.
	look     bool
	lookedAt time.Time
	backlog  bool
	// busyAt is when somebody last woke the fetchers, or a fetch found a job.
	busyAt time.Time
	calms  bool // while nothing happens the database is asked less often
}

const (
	// calmAfter is longer than a job may be stored ahead of its time, which only the poll knows of.
	calmAfter = 6 * time.Second
	// calmPoll: an idle node's polls were half of what it asked.
	calmPoll = 250 * time.Millisecond
)

// calm reports that the database was asked a moment ago, and that nobody has told of a job for so long that there can be none but one whose
// notification was lost.
func (h *hands) calm(now time.Time) bool {
	return h.calms && !h.look && !h.backlog && now.Sub(h.busyAt) > calmAfter && now.Sub(h.lookedAt) < calmPoll-fetchPollInterval/2
}

func newHands(workers int, busy func() int) *hands {
	return &hands{workers: workers, busy: busy, running: map[int64]store.Handed{}, look: true}
}

// take promises to take over up to n jobs: half of what is free, so that a publisher never keeps the others' jobs from being
// fetched, and none while jobs wait in the database, whose turn is first.
func (h *hands) take(n int) int {
	busy := h.busy()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.backlog {
		return 0
	}
	free := h.workers - busy - len(h.waiting) - len(h.running) - h.promised
	n = max(min(n, free/2), 0)
	h.promised += n
	return n
}

// give brings what came of a promise, and says whether there is something to run.
func (h *hands) give(taken int, handed []store.Handed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.promised -= taken
	h.waiting = append(h.waiting, handed...)
	return len(handed) > 0
}

// stir has the database asked at the next fetch.
func (h *hands) stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look = true
}

// next are up to limit jobs to run, and whether the database is to be asked for more.
func (h *hands) next(limit int) (jobs []store.Job, ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(limit, len(h.waiting))
	for _, handed := range h.waiting[:n] {
		h.running[handed.Job.ID] = handed
		jobs = append(jobs, handed.Job)
	}
	if h.waiting = h.waiting[n:]; len(h.waiting) == 0 {
		h.waiting = nil
	}
	now := time.Now()
	if h.look || n > 0 {
		h.busyAt = now
	}
	ask = n < limit && !h.calm(now) && (n == 0 || h.look || h.backlog || now.Sub(h.lookedAt) >= fetchPollInterval)
	if ask {
		h.look, h.lookedAt = false, now
	}
	return jobs, ask
}

// fetched learns how many jobs the database had of those that were asked for: where it had all, it may have more.
func (h *hands) fetched(n, asked int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backlog = n == asked; n > 0 {
		h.busyAt = time.Now()
	}
}

// work is what was handed over with a job that begins; nil where the delivery is to be loaded.
func (h *hands) work(jobID int64) *store.Work {
	h.mu.Lock()
	handed, ok := h.running[jobID]
	delete(h.running, jobID)
	h.mu.Unlock()
	switch {
	case !ok:
		return nil
	case !handed.Work.Fresh():
		handed.Work.Release()
		return nil
	}
	return handed.Work
}

// forget drops what was handed over with a job that has ended without it.
func (h *hands) forget(jobID int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if handed, ok := h.running[jobID]; ok {
		handed.Work.Release()
		delete(h.running, jobID)
	}
}

// jobs are those that are this node's and have not begun.
func (h *hands) jobs() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := slices.Collect(maps.Keys(h.running))
	for _, handed := range h.waiting {
		ids = append(ids, handed.Job.ID)
	}
	return ids
}

// close takes nothing over any more, and answers what was never begun. Called again it answers what came of promises since.
func (h *hands) close() (left []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, handed := range h.waiting {
		left = append(left, handed.Job.ID)
		handed.Work.Release()
	}
	h.waiting = nil
	return left
}
