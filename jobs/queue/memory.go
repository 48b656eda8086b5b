package queue

import (
	"context"
	"fmt"
	"sync"
)

// maxEventBytes is the largest body, except a relayed event's, which may exceed the limit by as much again. Wait waits
// until as much memory is free.
const maxEventBytes = 1 << 20

// Memory bounds the bodies of this node's attempts in flight.
type Memory struct {
	max int64

	mu    sync.Mutex
	used  int64
	freed chan struct{} // created by a caller that waits, closed when memory was released
}

// NewMemory allows this many bytes of bodies, at least 1 MiB.
func NewMemory(bytes int64) *Memory { return &Memory{max: max(bytes, maxEventBytes)} }

// InUse is how many bytes the bodies in flight take.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Wait waits for memory and returns how many bytes of bodies may be read now; 0 when ctx ends.
func (m *Memory) Wait(ctx context.Context) (free int64) {
	if !m.await(ctx, func() bool { free = m.max - m.used; return free >= maxEventBytes }) {
		return 0
	}
	return free
}

// await waits until a condition is true; false if ctx ends first. It calls the condition with the lock.
func (m *Memory) await(ctx context.Context, condition func() bool) bool {
	for {
		m.mu.Lock()
		met := condition()
		if !met && m.freed == nil {
			m.freed = make(chan struct{})
		}
		freed := m.freed
		m.mu.Unlock()
		if met {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// Take takes memory even if none is free.
func (m *Memory) Take(bytes int64) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken(bytes)
}

// Spare takes memory that the loader does not need; nil if there is none.
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

// Reserve waits until there is memory for the bodies of a batch. A batch that is larger than all memory is sent alone.
func (m *Memory) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, m.max)
	if !m.await(ctx, func() bool {
		if m.max-m.used < bytes {
			return false
		}
		release = m.taken(bytes)
		return true
	}) {
		return nil, fmt.Errorf("wait for memory: %w", ctx.Err())
	}
	return release, nil
}
