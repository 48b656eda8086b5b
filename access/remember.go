package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"postrider/postgres"
)

// Credentials that come with every request are looked up in the database once a second.
const (
	// rememberFor is how long a node uses what it found, and so how long a revoked credential may still work.
	rememberFor = time.Second
	// mostRemembered bounds the memory to some MB. A client that sends ten thousand different credentials makes the node
	// forget others, each of which costs a query.
	mostRemembered = 10_000
	// lookUpTime bounds a lookup. Several requests can share it, so it does not end with one of them.
	lookUpTime = 5 * time.Second
)

// remembered is what was found in the last second, by the SHA-256 of the credential; that nothing was found is
// remembered too. Concurrent requests with the same credential share one lookup.
type remembered[V any] struct {
	mu   sync.Mutex
	kept map[[32]byte]*memory[V]
}

type memory[V any] struct {
	found chan struct{} // closed when the rest is there
	at    time.Time     // before the lookup began: what it found may have changed since
	value V
	err   error
}

func newRemembered[V any]() *remembered[V] { return &remembered[V]{kept: map[[32]byte]*memory[V]{}} }

// get returns what is remembered, or else what find finds. Nothing is remembered if the database is unavailable.
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

// memory finds one that is fresh, or begins one that the caller has to fill.
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

// forget is for a change of one that this node makes itself.
func (r *remembered[V]) forget(key [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.kept, key)
}

// forgetAll is for changes that this node makes itself: they hold here at once.
func (r *remembered[V]) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kept)
}
