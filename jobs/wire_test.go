package jobs_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
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
	tn   *testnode.Node
	name string
	wire *wire
	dead bool
	stop func() // once: repairs the wire and stops the engine
}

// startKillable runs a node on its own wire until the test ends.
func startKillable(t *testing.T, tn *testnode.Node, name string, change func(*jobs.Options)) *killableNode {
	t.Helper()
	m := &killableNode{tn: tn, name: name, wire: newWire()}
	m.Engine = besideOver(t, tn, name, m.wire).Engine(t, change)
	require.NoError(t, m.Start(t.Context()))
	var once sync.Once
	m.stop = func() { once.Do(func() { m.end(t) }) }
	t.Cleanup(m.stop)
	return m
}

func (m *killableNode) end(t *testing.T) {
	t.Helper()
	m.wire.repair()
	ctx, cancel := context.WithTimeout(context.Background(), testnode.Timeout)
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
	m.tn.Exec(t, "DELETE FROM postrider_internal.nodes WHERE id = $1", m.name)
}

// besideOver is Beside with connections over a wire. An endpoint that has never responded gets a sixth of its workers.
func besideOver(t *testing.T, tn *testnode.Node, name string, w *wire) *testnode.Node {
	t.Helper()
	plain, err := postgres.OpenPool(t.Context(), tn.URL, 10)
	require.NoError(t, err)
	config := plain.Config()
	plain.Close()
	config.ConnConfig.DialFunc = w.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return tn.Beside(t, node.Options{Pool: pool, Node: name, MaxWorkers: 6 * controlEvents})
}
