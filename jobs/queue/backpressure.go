package queue

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river/rivertype"
)

const (
	// maxLag is the lag that publishes keep to while workers are the bottleneck: they wait while more jobs of this node's
	// publishes are to be fetched than the workers fetch in this time.
	maxLag = time.Second
	// pacedLag is the lag above which publishes may wait. Below, too few jobs were fetched to know how fast workers are.
	pacedLag = maxLag / 4
	// minLag is the measured lag above which the time since the last fetch counts, too. Times of creation are as exact.
	minLag = 50 * time.Millisecond
	// maxPause is the longest pause between two groups of publishes.
	maxPause = time.Second
	// lagShare is how many fetches the lag is the mean of, about: one job of each fetch is measured.
	lagShare = 8
)

// Backpressure slows publishes down while this node's workers, its CPU or the database cannot keep up with them.
// Without it, publishers queue jobs until admission puts their deliveries on hold, which costs more CPU. A node that
// makes no attempts has none, and its publishes do not wait.
type Backpressure struct {
	gate *Gate

	mu        sync.Mutex
	lag       time.Duration // at the last fetches; 0 if the last one had fewer jobs than requested
	backlog   bool          // the last fetch had all requested jobs
	fetchedAt time.Time
	fetched   rate
	created   []createdJobs // the oldest first
	waiting   int           // of these jobs, those that no node has fetched, about
	newest    time.Time     // when the newest fetched job was created, by this process's clock
	changed   chan struct{} // made by a publish that waits, closed after the next fetch
	stopped   bool
}

// createdJobs are the jobs that a group of publishes created.
type createdJobs struct {
	at time.Time
	n  int
}

// NewBackpressure makes that of a node with this gate.
func NewBackpressure(gate *Gate) *Backpressure { return &Backpressure{gate: gate} }

// Fetched reports the jobs that a fetch found. With fewer than requested, no due job waits.
func (b *Backpressure) Fetched(jobs []*rivertype.JobRow, requested int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.fetched.add(now, len(jobs))
	b.fetchedAt, b.backlog = now, len(jobs) == requested
	if !b.backlog {
		b.lag = 0
	} else if len(jobs) > 0 {
		b.lag += (b.waited(jobs[0]) - b.lag) / lagShare
	}
	b.waiting = b.recount(jobs)
	b.wake()
}

// wake lets the publishes that wait check again.
func (b *Backpressure) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Stop ends all waits: after the last fetch, none would end before its longest time.
func (b *Backpressure) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.wake()
}

// recount counts the jobs of this node's publishes that wait after these were fetched. Other nodes fetch some of them,
// and this node some of theirs; but jobs are fetched in the order of their creation. So those that were created after
// the newest fetched job wait, and those long before it do not.
func (b *Backpressure) recount(jobs []*rivertype.JobRow) int {
	if !b.backlog {
		b.created = nil
		return 0
	}
	for _, j := range jobs {
		at := b.fetchedAt.Add(-j.AttemptedAt.Sub(j.CreatedAt))
		if !j.ScheduledAt.After(j.CreatedAt) && at.After(b.newest) {
			b.newest = at
		}
	}
	least, most := 0, 0
	old := func(c createdJobs) bool { return c.at.Before(b.newest.Add(-pacedLag)) }
	b.created = slices.DeleteFunc(b.created, old)
	for _, c := range b.created {
		most += c.n
		if c.at.After(b.newest.Add(minLag)) {
			least += c.n
		}
	}
	return min(max(b.waiting-len(jobs), least), most)
}

// waited is how long a job has waited for a worker. Above maxLag, only a job counts that was due when it was created
// and may begin now. A later one may have waited to be promoted, and admission puts the others on hold.
func (b *Backpressure) waited(j *rivertype.JobRow) time.Duration {
	waited := j.AttemptedAt.Sub(j.ScheduledAt)
	if waited <= maxLag {
		return waited
	}
	var args AttemptArgs
	if j.ScheduledAt.After(j.CreatedAt) || json.Unmarshal(j.EncodedArgs, &args) != nil || b.gate.full(args.Subscription) {
		return 0
	}
	return waited
}

// Lag is how long due jobs wait until this node fetches them. It grows while no worker is free to fetch any.
func (b *Backpressure) Lag() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lagAt(time.Now())
}

func (b *Backpressure) lagAt(now time.Time) time.Duration {
	if !b.backlog || b.lag < minLag { // it may have fetched the last job
		return b.lag
	}
	return b.lag + now.Sub(b.fetchedAt)
}

// Created reports the jobs of a group of publishes, whose transaction began at this time.
func (b *Backpressure) Created(at time.Time, jobs int) {
	if b == nil || jobs <= 0 { // the admission counted those of the local handoff as held
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.created = append(b.created, createdJobs{at, jobs})
	b.waiting += jobs
}

// Wait waits before a group of publishes until the jobs of those before it will be fetched within maxLag, but no longer
// than maxPause. The measured lag shows a surplus only when its jobs are fetched: groups that waited by the lag came in
// floods, with pauses of up to 1 s between them. It reports whether it has waited.
func (b *Backpressure) Wait(ctx context.Context) (waited bool) {
	if b == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxPause)
	defer cancel()
	for {
		changed := b.full(time.Now())
		if changed == nil {
			return waited
		}
		waited = true
		select {
		case <-changed:
		case <-ctx.Done():
			return true
		}
	}
}

// full returns a channel that the next fetch closes if too many jobs wait to be fetched; nil otherwise.
func (b *Backpressure) full(now time.Time) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.lagAt(now) < pacedLag || b.waiting <= max(b.fetched.perSecond(now), b.gate.workers) {
		return nil
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}
