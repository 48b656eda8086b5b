package queue

import (
	"context"
	"fmt"
	"sync"
)

// maxEventBytes is the largest body there can be; less free memory than this is worth waiting for.
const maxEventBytes = 1 << 20

// Memory bounds the bodies of the attempts in flight on this node.
type Memory struct {
	max int64

	mu    sync.Mutex
	used  int64
	freed chan struct{} // created by a caller that waits, closed when memory was released
}

// NewMemory allows for so many bytes of bodies, 1 MiB at least.
func NewMemory(bytes int64) *Memory { return &Memory{max: max(bytes, maxEventBytes)} }

// InUse is how many bytes the bodies in flight take.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Wait returns how many bytes of bodies may be read now, once that is worth it; 0 when ctx ends.
func (m *Memory) Wait(ctx context.Context) int64 {
	for {
		free, freed := m.Free()
		if free >= maxEventBytes {
			return free
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0
		}
	}
}

// Free returns how many bytes are free, and a channel that is closed when there are more.
func (m *Memory) Free() (bytes int64, freed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.max - m.used, m.moreFreed()
}

func (m *Memory) moreFreed() <-chan struct{} {
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	return m.freed
}

// Take takes memory, whether it is free or not.
func (m *Memory) Take(bytes int64) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken(bytes)
}

// Spare takes memory that loading does not need; nil if there is none.
func (m *Memory) Spare(bytes int64) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+bytes > m.max-maxEventBytes {
		return nil
	}
	return m.taken(bytes)
}

func (m *Memory) taken(bytes int64) (release func()) {
	m.used += bytes
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.used -= bytes
		if m.freed != nil {
			close(m.freed)
			m.freed = nil
		}
	})
}

// Reserve waits until there is memory for the bodies of a batch. A batch that is larger than all of it is let through
// alone.
func (m *Memory) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, m.max)
	for {
		release, freed := m.reserve(bytes)
		if release != nil {
			return release, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for memory: %w", ctx.Err())
		}
	}
}

func (m *Memory) reserve(bytes int64) (release func(), freed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.max-m.used < bytes {
		return nil, m.moreFreed()
	}
	return m.taken(bytes), nil
}
