package jobs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// Negative controls: a check that never failed proves nothing. Each test breaks one rule that keeps events safe, in the
// database of the test, and requires that the checks of all fault tests detect it. The same scenario with the rule in
// force must pass, so that the broken rule is the cause.

// breakable is a node without the check of invariants at its end.
func breakable(t *testing.T) *testnode.Node {
	t.Helper()
	tn := testnode.Open(t, testdb.Clone(t), node.Options{Node: "publisher", MaxWorkers: 100})
	_, _, err := tn.System.Topics.Put(t.Context(), topicName,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	return tn
}

// violations has the counts of the invariants' queries; zero for a consistent database.
type violations struct{ BrokenTokens, EndedTwice, Miscounted, TooEarly int }

func violationsOf(t *testing.T, tn *testnode.Node) violations {
	t.Helper()
	return violations{
		tn.Count(t, testnode.BrokenTokens), tn.Count(t, testnode.EndedTwice), tn.Count(t, testnode.Miscounted),
		tn.Count(t, testnode.TooEarly),
	}
}

// controlled runs a scenario with the rule in force, and with it broken by a statement. A node dies with controlEvents
// requests in the trap, and another one takes over.
func controlled(
	t *testing.T, breaking string, groups int,
	scenario func(t *testing.T, tn *testnode.Node, x *trap, dead *killableNode, broken bool),
) {
	t.Helper()
	for name, statement := range map[string]string{"in force": "SELECT 1", "broken": breaking} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, x := breakable(t), newTrap(t, groups)
			tn.Exec(t, statement)
			copyPolicy(t, tn, "ga-2021", "hourly", `{"stepsInSeconds": [3600],"probation": {"scope": "none"}}`)
			subscribe(t, tn, "all", x.URL, under("hourly"))
			first := startKillable(t, tn, "first", nil)
			publishMany(t, tn, controlEvents)
			x.catches(t, controlEvents)
			first.kill(t)
			startKillable(t, tn, "second", nil)
			scenario(t, tn, x, first, name == "broken")
		})
	}
}

const controlEvents = 20

// unfenced inserts every deleted job row again, finalized, so that no node fetches it: a node with the id of a job that
// was given to another node finds it, and records.
const unfenced = `
CREATE FUNCTION postrider_internal.put_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, attempt,
        attempted_by, attempted_at, scheduled_at, created_at, finalized_at)
    VALUES (OLD.id, 'completed', OLD.args, OLD.kind, OLD.queue, OLD.priority, OLD.max_attempts, OLD.attempt,
        OLD.attempted_by, OLD.attempted_at, OLD.scheduled_at, OLD.created_at, now());
    RETURN NULL;
END $$;
CREATE TRIGGER put_back AFTER DELETE
    ON postrider_internal.river_job FOR EACH ROW EXECUTE FUNCTION postrider_internal.put_back()`

// The fence: only the statement that deletes the job row records the attempt. A node that was declared dead returns
// with responses to requests that another node has repeated.
func TestControlFence(t *testing.T) {
	t.Parallel()
	controlled(t, unfenced, 1, func(t *testing.T, tn *testnode.Node, x *trap, dead *killableNode, broken bool) {
		tn.AttemptsMade(t, controlEvents)
		require.Equal(t, violations{}, violationsOf(t, tn), "the second node alone violates nothing")
		x.unblock[0]()
		dead.wire.repair()
		tn.AttemptsMade(t, controlEvents) // the first node believes that it has recorded them
		if !broken {
			require.Equal(t, violations{}, violationsOf(t, tn))
			return
		}
		require.Equal(t, violations{BrokenTokens: controlEvents, Miscounted: controlEvents}, violationsOf(t, tn),
			"each attempt is recorded twice; each delivery has two jobs, and names one of them")
	})
}

// sameRow keeps the job row of a delivery for all its attempts and reruns: each has the id and the time of the one
// before.
const sameRow = `
CREATE FUNCTION postrider_internal.keep_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'deliveries' THEN
        NEW.job_id := OLD.job_id;
    ELSE
        SELECT job_id, time_to_live_since INTO STRICT NEW.id, NEW.created_at FROM postrider_internal.deliveries
        WHERE id = (NEW.args ->> 'd')::bigint;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_job BEFORE UPDATE ON postrider_internal.deliveries FOR EACH ROW
    WHEN (OLD.job_id <> NEW.job_id) EXECUTE FUNCTION postrider_internal.keep_job();
CREATE TRIGGER keep_job BEFORE INSERT ON postrider_internal.river_job FOR EACH ROW
    WHEN (NEW.kind = 'deliver' AND ((NEW.args ->> 'n')::int > 1 OR NEW.args ? 'r'))
        EXECUTE FUNCTION postrider_internal.keep_job()`

// A job row is one attempt. A row that runs again, as queues usually do it, is the token of two runs at once: both
// record with it.
func TestControlJobRow(t *testing.T) {
	t.Parallel()
	controlled(t, sameRow, 2, func(t *testing.T, tn *testnode.Node, x *trap, dead *killableNode, broken bool) {
		x.catches(t, 2*controlEvents)
		x.unblock[0]()
		dead.wire.repair()
		tn.AttemptsMade(t, controlEvents)
		x.unblock[1]()
		tn.AttemptsMade(t, controlEvents)
		require.Len(t, x.requests(), 2*controlEvents)
		if !broken {
			require.Equal(t, violations{}, violationsOf(t, tn))
			return
		}
		require.Equal(t, violations{Miscounted: controlEvents}, violationsOf(t, tn), "each attempt is recorded twice")
	})
}

// trap is an endpoint that keeps the first controlEvents requests waiting until unblock[0], as many more until
// unblock[1] and so on, and then responds with 503.
type trap struct {
	*endpoint
	caught  atomic.Int64
	unblock []func()
}

func newTrap(t *testing.T, groups int) *trap {
	t.Helper()
	x := &trap{}
	released := make([]chan struct{}, groups)
	for i := range groups {
		released[i] = make(chan struct{})
		x.unblock = append(x.unblock, sync.OnceFunc(func() { close(released[i]) }))
	}
	x.endpoint = newEndpoint(t, func(w http.ResponseWriter, _ request) {
		if group := int(x.caught.Add(1)-1) / controlEvents; group < groups {
			<-released[group]
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, unblock := range x.unblock {
		t.Cleanup(unblock) // before the server closes, which waits for its handlers
	}
	return x
}

// catches waits until n requests are waiting.
func (x *trap) catches(t *testing.T, n int) {
	t.Helper()
	testnode.Within(t, "requests in the trap", func() bool { return int(x.caught.Load()) == n })
}

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
	m.Engine = besideByWire(t, tn, name, m.wire).Engine(t, change)
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

// besideByWire is Beside with connections over a wire. An endpoint that has never responded gets a sixth of its
// workers.
func besideByWire(t *testing.T, tn *testnode.Node, name string, w *wire) *testnode.Node {
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
