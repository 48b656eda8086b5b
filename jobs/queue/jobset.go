package queue

import (
	"maps"
	"slices"
	"sync"
)

// JobSet is a set of jobs, such as those that this process runs. A running job of this node that is not in that set was
// fetched by a statement whose response was lost.
type JobSet struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// NewJobSet makes an empty set.
func NewJobSet() *JobSet { return &JobSet{ids: map[int64]struct{}{}} }

// Add adds a job until remove is called.
func (s *JobSet) Add(id int64) (remove func()) {
	s.mu.Lock()
	s.ids[id] = struct{}{}
	s.mu.Unlock()
	return func() { s.Remove(id) }
}

// Remove removes a job.
func (s *JobSet) Remove(id int64) {
	s.mu.Lock()
	delete(s.ids, id)
	s.mu.Unlock()
}

// Len is how many jobs there are.
func (s *JobSet) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// HasAny reports whether any of these is in the set.
func (s *JobSet) HasAny(ids []int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(ids, func(id int64) bool { _, has := s.ids[id]; return has })
}

// IDs lists the jobs. It is never nil, which would be NULL in a statement.
func (s *JobSet) IDs() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq([]int64{}, maps.Keys(s.ids))
}
