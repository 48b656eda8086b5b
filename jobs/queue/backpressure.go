package queue

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/riverqueue/river/rivertype"
)

const (
	// maxLag is the fetch lag above which publishes slow down.
	maxLag = time.Second
	// minLag is the measured lag above which the time since the last fetch counts, too.
	minLag = 50 * time.Millisecond
	// maxPause is the longest pause between two groups of publishes.
	maxPause = time.Second
	// lagShare is how many fetches the lag is the mean of, about: one job of each fetch is measured.
	lagShare = 8
)

// Backpressure slows publishes down while this node's workers, its CPU or the database cannot keep up with them.
// Without it, publishers queue jobs until admission puts their deliveries on hold, which costs more CPU.
type Backpressure struct {
	gate *Gate

	mu        sync.Mutex
	lag       time.Duration // at the last fetches; 0 if the last one had fewer jobs than requested
	backlog   bool          // the last fetch had all requested jobs
	fetchedAt time.Time
	fetched   rate
	next      time.Time // when the next group of publishes may begin
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

// Next returns how long the next group of publishes waits before its transaction. The group after it waits until the
// workers have fetched as many jobs as this one has.
func (b *Backpressure) Next(jobs int) time.Duration {
	if jobs == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	wait := max(b.next.Sub(now), 0)
	b.next = now.Add(min(wait+pause(b.lagAt(now), b.fetched.perSecond(now), jobs), maxPause))
	return wait
}

// pause is how long the workers take to fetch so many jobs, multiplied by the lag in seconds: if publishers are faster
// than the workers, the lag approaches 1 s. Publishers that are slower never wait.
func pause(lag time.Duration, fetchedPerSecond, jobs int) time.Duration {
	if lag <= maxLag {
		return 0
	}
	if fetchedPerSecond == 0 {
		return maxPause
	}
	return min(time.Duration(float64(lag)*float64(jobs)/float64(fetchedPerSecond)), maxPause)
}
