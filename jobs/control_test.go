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

	"postrider/bench"
	"postrider/event"
	"postrider/jobs"
	"postrider/pgdev"
	"postrider/store"
)

// Negative controls: a check that has never failed proves nothing. Each of these tests breaks one rule that keeps events safe, in the
// database of the test and not in the product, and requires that the checks which all fault tests rely on tell the damage. Beside
// it the same course is run with the rule in force, and must be told clean: so it is the broken rule that is seen.

// breakable is a bundle whose invariants the test itself looks at: they are meant to break.
func breakable(t *testing.T, url string) *bundle {
	t.Helper()
	b := &bundle{url: url, attempts: make(chan jobs.AttemptReport, 10_000)}
	b.store, b.pool = newStore(t, url, "publisher")
	require.NoError(t, b.store.EnsurePartitions(t.Context()))
	_, _, err := b.store.PutTopic(t.Context(), topicName, store.TopicSpec{Kind: store.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	return b
}

// damage is what the invariants' queries count; the zero value is a sound database.
type damage struct{ BrokenTokens, EndedTwice, Miscounted, TooEarly int }

func (b *bundle) damage(t *testing.T) damage {
	t.Helper()
	return damage{b.count(t, brokenTokens), b.count(t, endedTwice), b.count(t, miscounted), b.count(t, tooEarly)}
}

// ledgers are the publisher's and the endpoint's. What is lost is told from them alone.
type ledgers struct {
	published, accepted         *bench.Ledger
	publishedPath, acceptedPath string
}

func newLedgers(t *testing.T) *ledgers {
	t.Helper()
	l := &ledgers{publishedPath: filepath.Join(t.TempDir(), "published"), acceptedPath: filepath.Join(t.TempDir(), "accepted")}
	var err error
	l.published, err = bench.OpenLedger(l.publishedPath)
	require.NoError(t, err)
	l.accepted, err = bench.OpenLedger(l.acceptedPath)
	require.NoError(t, err)
	t.Cleanup(func() { l.published.Close(); l.accepted.Close() })
	return l
}

// publish notes n events, each after its publish was answered.
func (l *ledgers) publish(t *testing.T, b *bundle, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("event-", i)
		b.publishOne(t, id)
		require.NoError(t, l.published.Note(id, bench.Hash{}))
	}
}

// accept is told by the endpoint of a request that it answers with success.
func (l *ledgers) accept(r request) {
	var events []json.RawMessage
	_ = json.Unmarshal([]byte(r.body), &events)
	for _, e := range events {
		_ = l.accepted.Note(r.eventID(), sha256.Sum256(e))
	}
}

func (l *ledgers) compare(t *testing.T) bench.Verdict {
	t.Helper()
	published, err := bench.ReadLedger(l.publishedPath)
	require.NoError(t, err)
	accepted, err := bench.ReadLedger(l.acceptedPath)
	require.NoError(t, err)
	return bench.Compare(published, accepted)
}

// courses of a control: with the rule in force, and with it broken.
func controlled(t *testing.T, course func(t *testing.T, broken bool)) {
	t.Helper()
	for name, broken := range map[string]bool{"in force": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			course(t, broken)
		})
	}
}

const controlEvents = 20

// manyWorkers: an endpoint that has never answered gets a sixth of them.
func manyWorkers(o *jobs.Options) { o.MaxWorkers = 6 * controlEvents }

// unfenced puts every deleted job row back, finished, so that nobody fetches it: whoever comes with the id of a job that was
// given to another node finds it, and records.
const unfenced = `
CREATE FUNCTION postrider_internal.put_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, attempt, attempted_by, attempted_at, scheduled_at, created_at, finalized_at)
    VALUES (OLD.id, 'completed', OLD.args, OLD.kind, OLD.queue, OLD.priority, OLD.max_attempts, OLD.attempt, OLD.attempted_by, OLD.attempted_at, OLD.scheduled_at, OLD.created_at, now());
    RETURN NULL;
END $$;
CREATE TRIGGER put_back AFTER DELETE ON postrider_internal.river_job FOR EACH ROW EXECUTE FUNCTION postrider_internal.put_back()`

// The fence: only the statement that deletes the job row records the attempt. A node that everybody took for dead comes back with the
// answers to requests which another node has made again.
func TestControlFence(t *testing.T) {
	t.Parallel()
	controlled(t, func(t *testing.T, broken bool) {
		b := breakable(t, pgdev.NewDatabase(t))
		if broken {
			b.exec(t, unfenced)
		}
		x := newTrap(t, "0", func(w http.ResponseWriter, _ request, _ bool) { w.WriteHeader(http.StatusServiceUnavailable) })
		b.copyPolicy(t, "ga-2021", "patient", `{"steps":["1 hour"],"probation_scope":"none"}`)
		b.subscribe(t, "all", x.URL, under("patient"))
		first := b.startMortal(t, "first", manyWorkers)
		newLedgers(t).publish(t, b, controlEvents)
		x.catches(t, controlEvents)
		first.die(t)
		x.set.Store(false)
		b.startMortal(t, "second", manyWorkers)
		b.attemptsMade(t, controlEvents)
		require.Equal(t, damage{}, b.damage(t), "the second node alone does no damage")

		x.letGo()
		first.wire.mend()
		b.attemptsMade(t, controlEvents) // the first node believes that it has recorded them

		if !broken {
			require.Equal(t, damage{}, b.damage(t))
			return
		}
		require.Equal(t, damage{BrokenTokens: 2 * controlEvents, Miscounted: controlEvents}, b.damage(t),
			"each attempt is recorded twice; each delivery has two jobs, and names one of them")
	})
}

// sameRow keeps the job row of a delivery for all its attempts: the retry gets the id of the attempt before it.
const sameRow = `
CREATE FUNCTION postrider_internal.keep_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'deliveries' THEN
        NEW.job_id := OLD.job_id;
    ELSE
        SELECT job_id INTO STRICT NEW.id FROM postrider_internal.deliveries WHERE id = (NEW.args ->> 'd')::bigint;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_job BEFORE UPDATE ON postrider_internal.deliveries FOR EACH ROW
    WHEN (OLD.job_id IS NOT NULL AND NEW.job_id IS NOT NULL AND OLD.attempts < NEW.attempts) EXECUTE FUNCTION postrider_internal.keep_job();
CREATE TRIGGER keep_job BEFORE INSERT ON postrider_internal.river_job FOR EACH ROW
    WHEN (NEW.kind = 'deliver' AND (NEW.args ->> 'n')::int > 1 AND NOT NEW.args ? 'r') EXECUTE FUNCTION postrider_internal.keep_job()`

// A job row is one attempt. River marks a run that has ended as completed, by the row's id, some 50 ms later, whatever runs under that id
// by then. When the node dies in the middle of that run, nobody knows that there was anything to make again.
func TestControlJobRow(t *testing.T) {
	t.Parallel()
	controlled(t, func(t *testing.T, broken bool) {
		b := breakable(t, pgdev.NewDatabase(t))
		if broken {
			b.exec(t, sameRow)
		}
		l := newLedgers(t)
		x := newTrap(t, "1", func(w http.ResponseWriter, r request, caught bool) {
			if caught || r.header.Get("Aeg-Delivery-Count") == "0" {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			l.accept(r)
		})
		b.copyPolicy(t, "ga-2021", "brief", `{"steps":["1 millisecond"],"probation_scope":"none"}`)
		b.exec(t, "UPDATE postrider_internal.retry_policy_cells SET min_delay = '0' WHERE policy = 'brief'")
		require.NoError(t, b.store.Reload(t.Context()))
		b.subscribe(t, "all", x.URL, under("brief"))
		first := b.startMortal(t, "first", manyWorkers)
		l.publish(t, b, controlEvents)
		x.catches(t, controlEvents)
		b.beats(t, "first", 2) // River has told the database all that it will

		hurt := b.damage(t)
		first.die(t)
		x.set.Store(false)
		x.letGo()
		b.startMortal(t, "second", manyWorkers)
		b.beats(t, "second", 4)
		b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE finalized_at IS NULL")
		if !broken {
			require.Equal(t, damage{}, hurt)
			require.Empty(t, l.compare(t).Lost)
			require.Equal(t, damage{}, b.damage(t))
			return
		}
		require.NotZero(t, hurt.BrokenTokens, "seen even before the node died")
		require.Equal(t, hurt, b.damage(t))
		require.Len(t, l.compare(t).Lost, hurt.BrokenTokens, "acknowledged, and never to arrive")
	})
}

// trap is an endpoint that keeps the requests of one attempt (aeg-delivery-count) waiting which come while it is set, until letGo.
// answer is told which were caught.
type trap struct {
	*endpoint
	count   string
	set     atomic.Bool
	caught  atomic.Int64
	release chan struct{}
	letGo   func()
}

func newTrap(t *testing.T, count string, answer func(w http.ResponseWriter, r request, caught bool)) *trap {
	t.Helper()
	x := &trap{count: count, release: make(chan struct{})}
	x.set.Store(true)
	x.letGo = sync.OnceFunc(func() { close(x.release) })
	x.endpoint = newEndpoint(t, func(w http.ResponseWriter, r request) {
		caught := x.set.Load() && r.header.Get("Aeg-Delivery-Count") == x.count
		if caught {
			x.caught.Add(1)
			<-x.release
		}
		answer(w, r, caught)
	})
	t.Cleanup(x.letGo) // before the server closes, which waits for its handlers
	return x
}

func (x *trap) catches(t *testing.T, n int) {
	t.Helper()
	within(t, "requests in the trap", func() bool { return int(x.caught.Load()) == n })
}
