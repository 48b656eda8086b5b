package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"postrider/internal/postgres"
)

// Credentials that come with every request are looked up in the database once a second.
const (
	// rememberFor is how long a node uses a result, and so how long a revoked credential may still work.
	rememberFor = time.Second
	// mostRemembered bounds the memory to some MB. A client that sends ten thousand different credentials makes the node
	// forget others, each of which costs a query.
	mostRemembered = 10_000
	// lookUpTime bounds a lookup. Several requests can share it, so it does not end with one of them.
	lookUpTime = 5 * time.Second
)

// remembered has the results of the last second by the SHA-256 of the credential, also those that found nothing.
// Concurrent requests with the same credential share one lookup.
type remembered[V any] struct {
	mu   sync.Mutex
	kept map[[32]byte]*memory[V]
}

type memory[V any] struct {
	found chan struct{} // closed when the lookup has ended
	at    time.Time     // before the lookup began: its result may have changed since
	value V
	err   error
}

func newRemembered[V any]() *remembered[V] { return &remembered[V]{kept: map[[32]byte]*memory[V]{}} }

// get returns the remembered result, or calls find. An outage of the database is not remembered.
func (r *remembered[V]) get(ctx context.Context, key [32]byte, find func(context.Context) (V, error)) (V, error) {
	m, mine := r.memory(key)
	if mine {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTime)
		m.value, m.err = find(bounded)
		cancel()
		if errors.Is(m.err, postgres.ErrUnavailable) {
			r.forgetThis(key, m)
		}
		close(m.found)
	}
	select {
	case <-m.found:
		return m.value, m.err
	case <-ctx.Done():
		var none V
		return none, postgres.ReadError("a credential", ctx.Err())
	}
}

// memory returns a fresh result, or a new one that the caller must fill.
func (r *remembered[V]) memory(key [32]byte) (m *memory[V], mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.kept[key]; m != nil && time.Since(m.at) < rememberFor {
		return m, false
	}
	if len(r.kept) >= mostRemembered {
		for other := range r.kept { // any
			delete(r.kept, other)
			break
		}
	}
	m = &memory[V]{found: make(chan struct{}), at: time.Now()}
	r.kept[key] = m
	return m, true
}

func (r *remembered[V]) forgetThis(key [32]byte, m *memory[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[key] == m {
		delete(r.kept, key)
	}
}

// forget makes this node's change of a credential effective here immediately.
func (r *remembered[V]) forget(key [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.kept, key)
}

// forgetAll makes this node's changes effective here immediately.
func (r *remembered[V]) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kept)
}
