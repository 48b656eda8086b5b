package jobs_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/ledger"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// Negative controls: a check that never failed proves nothing. Each test breaks one rule that keeps events safe, in the
// database of the test, and requires that the checks of all fault tests detect the damage. The same scenario with the
// rule in force must pass, so that the broken rule is the cause.

// breakable is a node without the check of invariants at its end.
func breakable(t *testing.T, url string) *testnode.Node {
	t.Helper()
	tn := testnode.Open(t, url, node.Options{Node: "publisher", MaxWorkers: 100})
	_, _, err := tn.System.Topics.Put(t.Context(), topicName,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	return tn
}

// damage has the counts of the invariants' queries; zero for a consistent database.
type damage struct{ BrokenTokens, EndedTwice, Miscounted, TooEarly int }

func damageOf(t *testing.T, tn *testnode.Node) damage {
	t.Helper()
	return damage{
		tn.Count(t, testnode.BrokenTokens), tn.Count(t, testnode.EndedTwice), tn.Count(t, testnode.Miscounted),
		tn.Count(t, testnode.TooEarly),
	}
}

// ledgers are the publisher's and the endpoint's; lost events follow from them alone.
type ledgers struct {
	published, accepted         *ledger.Ledger
	publishedPath, acceptedPath string
}

func newLedgers(t *testing.T) *ledgers {
	t.Helper()
	l := &ledgers{
		publishedPath: filepath.Join(t.TempDir(), "published"), acceptedPath: filepath.Join(t.TempDir(), "accepted"),
	}
	var err error
	l.published, err = ledger.Open(l.publishedPath)
	require.NoError(t, err)
	l.accepted, err = ledger.Open(l.acceptedPath)
	require.NoError(t, err)
	t.Cleanup(func() { l.published.Close(); l.accepted.Close() })
	return l
}

// publish notes n events, each after the response to its publish.
func (l *ledgers) publish(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("event-", i)
		publishOne(t, tn, id)
		require.NoError(t, l.published.Note(id, ledger.Hash{}))
	}
}

// accept notes the event of a request to which the endpoint responds with success.
func (l *ledgers) accept(r request) {
	var events []json.RawMessage
	_ = json.Unmarshal([]byte(r.body), &events)
	for _, e := range events {
		_ = l.accepted.Note(r.eventID(), sha256.Sum256(e))
	}
}

func (l *ledgers) compare(t *testing.T) ledger.Verdict {
	t.Helper()
	verdict, err := ledger.CompareFiles(l.publishedPath, l.acceptedPath)
	require.NoError(t, err)
	return verdict
}

// controlled runs a scenario with the rule in force, and with it broken.
func controlled(t *testing.T, scenario func(t *testing.T, broken bool)) {
	t.Helper()
	for name, broken := range map[string]bool{"in force": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, broken)
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
	controlled(t, func(t *testing.T, broken bool) {
		tn := breakable(t, testdb.Clone(t))
		if broken {
			tn.Exec(t, unfenced)
		}
		x := newTrap(t, 1)
		copyPolicy(t, tn, "ga-2021", "hourly", `{"steps":["1 hour"],"probation_scope":"none"}`)
		subscribe(t, tn, "all", x.URL, under("hourly"))
		first := startKillable(t, tn, "first", nil)
		newLedgers(t).publish(t, tn, controlEvents)
		x.catches(t, controlEvents)
		first.kill(t)
		startKillable(t, tn, "second", nil)
		tn.AttemptsMade(t, controlEvents)
		require.Equal(t, damage{}, damageOf(t, tn), "the second node alone does no damage")

		x.letGo[0]()
		first.wire.repair()
		tn.AttemptsMade(t, controlEvents) // the first node believes that it has recorded them

		if !broken {
			require.Equal(t, damage{}, damageOf(t, tn))
			return
		}
		require.Equal(t, damage{BrokenTokens: 2 * controlEvents, Miscounted: controlEvents}, damageOf(t, tn),
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
	controlled(t, func(t *testing.T, broken bool) {
		tn := breakable(t, testdb.Clone(t))
		if broken {
			tn.Exec(t, sameRow)
		}
		x := newTrap(t, 2)
		copyPolicy(t, tn, "ga-2021", "hourly", `{"steps":["1 hour"],"probation_scope":"none"}`)
		subscribe(t, tn, "all", x.URL, under("hourly"))
		first := startKillable(t, tn, "first", nil)
		newLedgers(t).publish(t, tn, controlEvents)
		x.catches(t, controlEvents)
		first.kill(t)
		startKillable(t, tn, "second", nil)
		x.catches(t, 2*controlEvents)

		x.letGo[0]()
		first.wire.repair()
		tn.AttemptsMade(t, controlEvents)
		x.letGo[1]()
		tn.AttemptsMade(t, controlEvents)

		require.Len(t, x.requests(), 2*controlEvents)
		if !broken {
			require.Equal(t, damage{}, damageOf(t, tn))
			return
		}
		require.Equal(t, damage{Miscounted: controlEvents}, damageOf(t, tn), "each attempt is recorded twice")
	})
}

// trap is an endpoint that keeps the first controlEvents requests waiting until letGo[0], as many more until letGo[1]
// and so on, and then responds with 503.
type trap struct {
	*endpoint
	caught atomic.Int64
	letGo  []func()
}

func newTrap(t *testing.T, groups int) *trap {
	t.Helper()
	x := &trap{}
	released := make([]chan struct{}, groups)
	for i := range groups {
		released[i] = make(chan struct{})
		x.letGo = append(x.letGo, sync.OnceFunc(func() { close(released[i]) }))
	}
	x.endpoint = newEndpoint(t, func(w http.ResponseWriter, _ request) {
		if group := int(x.caught.Add(1)-1) / controlEvents; group < groups {
			<-released[group]
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, letGo := range x.letGo {
		t.Cleanup(letGo) // before the server closes, which waits for its handlers
	}
	return x
}

// catches waits until n requests are waiting.
func (x *trap) catches(t *testing.T, n int) {
	t.Helper()
	testnode.Within(t, "requests in the trap", func() bool { return int(x.caught.Load()) == n })
}
