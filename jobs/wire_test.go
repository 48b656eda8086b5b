package jobs_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/jobs"
)

// wire carries all connections of a node to PostgreSQL. While it is cut, other nodes take the node for dead: nothing
// that it knows reaches the database, and it continues its work. Repaired, the node has returned.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

var errCut = errors.New("the wire is cut")

func newWire() *wire { return &wire{conns: map[net.Conn]bool{}} }

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, errCut
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		conn.Close()
		return nil, errCut
	}
	w.conns[conn] = true
	return conn, nil
}

// sever breaks every connection: a COMMIT whose response is lost is committed all the same.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for conn := range w.conns {
		conn.Close()
	}
	clear(w.conns)
}

func (w *wire) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// killableNode is a node that can die and return.
type killableNode struct {
	*jobs.Engine
	b    *bundle
	name string
	wire *wire
	dead bool
	stop func() // once: repairs the wire and stops the engine
}

// startKillable runs a node on its own wire until the test ends.
func (b *bundle) startKillable(t *testing.T, name string, change func(*jobs.Options)) *killableNode {
	t.Helper()
	m := &killableNode{b: b, name: name, wire: newWire()}
	m.Engine = b.newEngine(t, newStoreOver(t, b.url, name, m.wire), change)
	require.NoError(t, m.Start(t.Context()))
	var once sync.Once
	m.stop = func() { once.Do(func() { m.end(t) }) }
	t.Cleanup(m.stop)
	return m
}

func (m *killableNode) end(t *testing.T) {
	t.Helper()
	m.wire.repair()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := m.Stop(ctx); !m.dead { // a dead node's connection may be cut when it removes its lease
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err())
}

// kill cuts the node off and removes its lease, which other nodes would do five seconds later.
func (m *killableNode) kill(t *testing.T) {
	t.Helper()
	m.dead = true
	m.wire.sever()
	m.b.exec(t, "DELETE FROM postrider_internal.nodes WHERE id = $1", m.name)
}

// newStoreOver is newStore with connections over a wire. An endpoint that has never responded gets a sixth of its
// workers.
func newStoreOver(t *testing.T, url, name string, w *wire) *node.System {
	t.Helper()
	plain, err := postgres.OpenPool(t.Context(), url, 10)
	require.NoError(t, err)
	config := plain.Config()
	plain.Close()
	config.ConnConfig.DialFunc = w.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	sealer, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	s, err := node.New(t.Context(),
		node.Options{Pool: pool, Sealer: sealer, Logger: quiet(), Node: name, MaxWorkers: 6 * controlEvents})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; pool.Close() })
	return s
}

// within waits for a condition that the test needs. It polls less often after a while: most polls are queries, and at
// 10 ms the tests of a run sent 11,000.
func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for pause := tick; !happened(); pause = min(pause+pause/8, 10*tick) {
		require.True(t, time.Now().Before(deadline), "not within %s: %s", waitTimeout, what)
		<-time.After(pause)
	}
}
