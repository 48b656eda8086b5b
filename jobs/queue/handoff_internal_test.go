package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The poll intervals of the fetchers in these tests.
const testPoll, testIdlePoll = 100 * time.Millisecond, 250 * time.Millisecond

func localJobs(ids ...int64) (jobs []*Work) {
	for _, id := range ids {
		jobs = append(jobs, &Work{Job: JobToken{JobID: id}})
	}
	return jobs
}

// openHandoff returns a handoff that is open for 100 workers.
func openHandoff() (*Handoff, *JobSet) {
	active := NewJobSet()
	h := NewHandoff(100, active, NewWake())
	h.Open(testPoll, testIdlePoll)
	return h, active
}

func TestHandoffReservesHalfOfTheFreeWorkers(t *testing.T) {
	t.Parallel()
	h, _ := openHandoff()
	begin := func(n int) {
		for range n {
			h.Begin()
		}
	}
	begin(20)
	require.Equal(t, 40, h.Reserve(1000))
	require.Equal(t, 20, h.Reserve(1000), "reserved workers are not free")
	require.Equal(t, 5, h.Reserve(5))
	h.Put(40, localJobs(1, 2))
	h.Put(20, nil)
	h.Put(5, nil)
	require.Equal(t, 39, h.Reserve(1000), "two wait")
	h.Put(39, nil)
	begin(80)
	require.Zero(t, h.Reserve(10))
	require.Zero(t, h.Query(10), "no worker is free")
	for range 100 {
		h.End()
	}
	h.Fetched(7, 7)
	require.Zero(t, h.Reserve(10), "jobs in the database come first")
	h.Fetched(6, 7)
	require.Equal(t, 10, h.Reserve(10))
}

func TestHandoffQueriesForTheFreeWorkers(t *testing.T) {
	t.Parallel()
	h, active := openHandoff()
	require.Equal(t, 10, h.Query(10))
	h.Put(h.Reserve(20), localJobs(1, 2))
	<-h.Ready()
	require.Equal(t, 98, h.Query(1000))
	require.Len(t, h.Take(), 2)
	require.Equal(t, 2, active.Len())
	require.Equal(t, 98, h.Query(1000))
	require.Empty(t, h.Take())
	require.Empty(t, h.Close())
}

// An idle node queries the database less often, but not before any job that is stored ahead of its time would be due.
func TestHandoffIsIdleWhenNothingHappens(t *testing.T) {
	t.Parallel()
	idle := func() *Handoff {
		h, now := NewHandoff(100, NewJobSet(), NewWake()), time.Now()
		h.open, h.poll, h.idlePoll = true, testPoll, testIdlePoll
		h.queriedAt, h.busyAt = now.Add(-testPoll), now.Add(-idleAfter-time.Second)
		return h
	}
	queries := func(h *Handoff) bool { return h.Query(10) > 0 }
	require.False(t, queries(idle()))
	require.Greater(t, idleAfter, 5*time.Second+testPoll)
	for name, change := range map[string]func(*Handoff){
		"woken":                   func(h *Handoff) { h.wake.Request(DeliverQueue) },
		"woken a moment ago":      func(h *Handoff) { h.busyAt = time.Now().Add(-idleAfter + time.Second) },
		"queried a while ago":     func(h *Handoff) { h.queriedAt = time.Now().Add(-testIdlePoll) },
		"a fetch found a job":     func(h *Handoff) { h.Fetched(1, 10) },
		"the database has more":   func(h *Handoff) { h.backlog = true },
		"no notification arrives": func(h *Handoff) { h.idlePoll = 0 },
	} {
		h := idle()
		change(h)
		require.True(t, queries(h), name)
	}
	h := idle()
	h.wake.Request(DeliverQueue)
	require.True(t, queries(h))
	require.True(t, queries(h), "for six seconds")
}

func TestHandoffReturnsJobsThatWereNotBegun(t *testing.T) {
	t.Parallel()
	h, active := openHandoff()
	h.Put(h.Reserve(2), localJobs(7, 8))
	require.Len(t, h.Take(), 2)
	h.Put(h.Reserve(1), localJobs(9))
	require.ElementsMatch(t, []int64{7, 8, 9}, active.IDs())
	require.Equal(t, []int64{9}, h.Close())
	require.Zero(t, h.Reserve(10))
}

// River fetches at the end of a job only if all of its own workers were busy, and local jobs are not River's.
func TestHandoffRequestsAFetchWhenAWorkerIsFree(t *testing.T) {
	t.Parallel()
	h, _ := openHandoff()
	require.Equal(t, DeliverQueue, h.wake.Next(), "by Open")
	h.Begin()
	h.End()
	require.Empty(t, h.wake.Next(), "the database has no more jobs")
	h.Fetched(7, 7)
	h.Begin()
	h.End()
	require.Equal(t, DeliverQueue, h.wake.Next())
	h.Fetched(0, 7)
	for range 100 {
		h.Begin()
	}
	h.wake.Request(DeliverQueue)
	require.Equal(t, DeliverQueue, h.wake.Next())
	require.Zero(t, h.Query(10), "no worker is free")
	h.End()
	require.Equal(t, DeliverQueue, h.wake.Next())
	require.Equal(t, 1, h.Query(10))
}

// Before a node is registered, other nodes would reclaim its jobs.
func TestHandoffReservesNothingBeforeItIsOpen(t *testing.T) {
	t.Parallel()
	h := NewHandoff(100, NewJobSet(), NewWake())
	require.Zero(t, h.Reserve(10))
	h.Open(testPoll, testIdlePoll)
	require.Equal(t, 10, h.Reserve(10))
}

func TestJobSet(t *testing.T) {
	t.Parallel()
	s := NewJobSet()
	require.NotNil(t, s.IDs(), "nil would be NULL in the statement, and x <> ALL (NULL) is never true")
	one, two := s.Add(1), s.Add(2)
	ids := s.IDs()
	slices.Sort(ids)
	require.Equal(t, []int64{1, 2}, ids)
	one()
	require.Equal(t, []int64{2}, s.IDs())
	two()
	require.Empty(t, s.IDs())
}
