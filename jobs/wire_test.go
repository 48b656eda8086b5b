package jobs_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/app"
	"postrider/jobs"
	"postrider/postgres"
)

// wire is all that connects a node with PostgreSQL. Cut, the node is as good as dead to the others: nothing that it
// knows reaches the database, and it goes on working with what it has. Mended, it is the node that came back from the
// dead.
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

// sever breaks every connection, whatever travels on it: a COMMIT whose answer is lost was committed all the same.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for conn := range w.conns {
		conn.Close()
	}
	clear(w.conns)
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// mortal is a node that can die and come back.
type mortal struct {
	*jobs.Engine
	b    *bundle
	name string
	wire *wire
	dead bool
	stop func() // once: mends the wire and stops the engine
}

// startMortal sets a node going on a wire of its own, until the test ends.
func (b *bundle) startMortal(t *testing.T, name string, change func(*jobs.Options)) *mortal {
	t.Helper()
	m := &mortal{b: b, name: name, wire: newWire()}
	m.Engine = b.newEngine(t, newStoreOver(t, b.url, name, m.wire), change)
	require.NoError(t, m.Start(t.Context()))
	var once sync.Once
	m.stop = func() { once.Do(func() { m.comeToAnEnd(t) }) }
	t.Cleanup(m.stop)
	return m
}

func (m *mortal) comeToAnEnd(t *testing.T) {
	t.Helper()
	m.wire.mend()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Stop(ctx); !m.dead { // the dead may meet a connection that was cut when they give their lease back
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err())
}

// die cuts the node off and strikes it from the list of those that live, which the others would do five seconds later.
func (m *mortal) die(t *testing.T) {
	t.Helper()
	m.dead = true
	m.wire.sever()
	m.b.exec(t, "DELETE FROM postrider_internal.nodes WHERE id = $1", m.name)
}

// newStoreOver is newStore whose connections go over a wire. An endpoint that has never responded gets a sixth of its
// workers.
func newStoreOver(t *testing.T, url, node string, w *wire) *app.System {
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
	s, err := app.New(t.Context(),
		app.Options{Pool: pool, Sealer: sealer, Logger: quiet(), Node: node, MaxWorkers: 6 * controlEvents})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; pool.Close() })
	return s
}

// within waits for what a test cannot go on without.
func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	require.Eventually(t, happened, patience, tick, "%s", what)
}
