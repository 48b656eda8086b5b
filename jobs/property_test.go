package jobs_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/catalog"
	"postrider/cmd/postrider/app"
	"postrider/jobs"
	"postrider/postgres"
)

var sequence = flag.Uint64("sequence", 0, "run this one sequence of TestSequencesOfEverything")

// Whatever is done in whatever order, nodes dying in the middle of it: the rows say what the model says. Every event
// that was published is owed once to everyone who wanted it, ends once and as it must, is attempted as often as it must
// be, and at the end, when all endpoints work and nothing is paused, nothing is left.
//
// A sequence that fails prints its seed and its steps; -sequence runs that one again.
func TestSequencesOfEverything(t *testing.T) {
	t.Parallel()
	sequences, steps := 2, 12
	if *faults {
		sequences, steps = 100, 40
	}
	first := rand.Uint64()
	if *sequence != 0 {
		sequences, first = 1, *sequence
	}
	for i := range uint64(sequences) {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			t.Parallel()
			newWorld(t, first+i).run(t, steps)
		})
	}
}

// world is the model beside the real thing.
type world struct {
	*bundle
	*model
	random *rand.Rand
	steps  []string
	events int

	node  *mortal
	nodes int

	endpoint *endpoint
	hung     atomic.Int64    // requests that wait
	hang     atomic.Bool     // whether those that come wait
	mu       sync.Mutex      // of what follows
	arrived  map[string]bool // "event/lane", answered with success
	verdicts map[string]int  // by path
	release  chan struct{}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		bundle: setup(t), model: newModel(), random: rand.New(rand.NewPCG(seed, seed)),
		arrived: map[string]bool{}, verdicts: map[string]int{}, release: make(chan struct{}),
	}
	// Five events for all go through a route job.
	w.store, _ = newStoreWith(t, w.url, app.Options{Node: "publisher", RouteThreshold: 5*len(laneKinds) - 1})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sequence %d:\n%s", seed, strings.Join(w.steps, "\n"))
		}
	})
	const hours = `"steps":["1 hour"],"tail":"1 hour","default_max_attempts":4`
	w.copyPolicy(t, "ga-2021", "plain", `{`+hours+`,"probation_scope":"none"}`)
	w.copyPolicy(t, "ga-2019", "at-ttl", `{`+hours+`,"probation_scope":"none"}`)
	w.copyPolicy(t, "ga-2021", "resting", `{`+hours+`,"probation_trigger":2}`)
	w.endpoint = newEndpoint(t, w.answer)
	t.Cleanup(w.unhang) // before the server closes, which waits for its handlers
	for _, kind := range laneKinds {
		w.make(t, kind)
	}
	w.startNode(t)
	return w
}

// answer is every endpoint's: they are told apart by the path, the event subscription's name. A request that hangs is
// one that its node does not live to record: it has not arrived.
func (w *world) answer(rw http.ResponseWriter, r request) {
	w.mu.Lock()
	status, release := w.verdicts[r.uri], w.release
	w.mu.Unlock()
	if w.hang.Load() {
		w.hung.Add(1)
		<-release
		w.hung.Add(-1)
	} else if status == http.StatusOK {
		w.arrive(r)
	}
	rw.WriteHeader(status)
}

func (w *world) arrive(r request) {
	var events []struct{ ID string }
	_ = json.Unmarshal([]byte(r.body), &events)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.arrived[e.ID+r.uri] = true
	}
}

func (w *world) unhang() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hang.Store(false)
	close(w.release)
	w.release = make(chan struct{})
}

func (w *world) startNode(t *testing.T) {
	t.Helper()
	w.nodes++
	w.node = w.startMortal(t, fmt.Sprint("mortal-", w.nodes), func(o *jobs.Options) {
		o.StopTimeout, o.OnAttempt = 50*time.Millisecond, nil
	})
}

// make makes an event subscription of a kind.
func (w *world) make(t *testing.T, kind *laneKind) {
	t.Helper()
	lane := &modelLane{kind: kind, batches: kind.batches}
	w.lanes = append(w.lanes, lane)
	w.put(t, lane)
	w.setVerdict(lane, modelVerdicts[w.random.IntN(len(modelVerdicts))])
	w.log("%s answers %d", kind.name, lane.verdict)
}

// put writes an event subscription's settings.
func (w *world) put(t *testing.T, lane *modelLane) {
	t.Helper()
	changes := []func(*catalog.SubscriptionSpec){under(lane.kind.policy)}
	if lane.batches {
		changes = append(changes, batching(3, 64))
	}
	if lane.kind.noDeadLetter {
		changes = append(changes, func(s *catalog.SubscriptionSpec) {
			s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
		})
	}
	lane.id = w.subscribe(t, lane.kind.name, w.endpoint.URL+"/"+lane.kind.name, both(changes...)).ID
}

func (w *world) setVerdict(lane *modelLane, status int) {
	lane.verdict = status
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts["/"+lane.kind.name] = status
}

func (w *world) log(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *world) run(t *testing.T, steps int) {
	t.Helper()
	for range steps {
		w.step(t)
		w.requireModel(t)
	}
	w.drain(t)
	w.requireModel(t)
	w.requireArrived(t)
}

// step does something at random.
func (w *world) step(t *testing.T) {
	t.Helper()
	lanes := w.live()
	if len(lanes) == 0 {
		w.remake(t)
		return
	}
	lane := lanes[w.random.IntN(len(lanes))]
	switch n := w.random.IntN(100); {
	case n < 22:
		w.publishSome(t)
	case n < 36:
		w.log("travel")
		w.bundle.travel(t)
		w.model.travel()
	case n < 48:
		w.setVerdict(lane, modelVerdicts[w.random.IntN(len(modelVerdicts))])
		w.log("%s answers %d", lane.kind.name, lane.verdict)
	case n < 58:
		w.pauseOne(t, lane, w.random.IntN(2) == 0)
	case n < 68:
		w.log("resume %s", lane.kind.name)
		w.bundle.resume(t, lane.kind.name)
		w.model.resume(lane)
	case n < 74:
		w.age(t, lane)
	case n < 78:
		w.rebatch(t, lane)
	case n < 82:
		w.endRests(t)
	case n < 87:
		w.log("delete %s", lane.kind.name)
		require.NoError(t, w.store.Subscriptions.Delete(t.Context(), topicName, lane.kind.name))
		w.model.remove(lane)
	case n < 90:
		w.remake(t)
	case n < 94:
		w.operate(t, lane)
	default:
		w.endNode(t, lane)
	}
}

// publishSome publishes a few events, each in a request of its own or all in one.
func (w *world) publishSome(t *testing.T) {
	t.Helper()
	w.owe(w.send(t))
}

func (w *world) send(t *testing.T) (ids []string) {
	t.Helper()
	var bodies []string
	for range 1 + w.random.IntN(6) {
		ids = append(ids, fmt.Sprintf("e%d", w.events))
		bodies = append(bodies, eventGridBody(ids[len(ids)-1], "{}"))
		w.events++
	}
	together := w.random.IntN(2) == 0
	w.log("publish %s, together %v", strings.Join(ids, " "), together)
	if together {
		bodies = []string{strings.Join(bodies, ",")}
	}
	for _, body := range bodies {
		w.bundle.publish(t, jsonType, "["+body+"]")
	}
	return ids
}

func (w *world) owe(ids []string) {
	for _, id := range ids {
		w.model.publish(id)
	}
}

func (w *world) pauseOne(t *testing.T, lane *modelLane, stop bool) {
	t.Helper()
	w.log("pause %s, stop the time to live %v", lane.kind.name, stop)
	_, err := w.store.Holds.Pause(t.Context(), topicName, lane.kind.name, &stop)
	require.NoError(t, err)
	w.model.pause(lane, stop)
}

// age ends the time to live of every other event that is owed: a batch then has members that leave it, and others that
// stay.
func (w *world) age(t *testing.T, lane *modelLane) {
	t.Helper()
	odd := w.random.IntN(2)
	w.log("%s: the events whose number is %d modulo 2 have outlived their time", lane.kind.name, odd)
	w.exec(t, `UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - interval '2 days'
		FROM postrider_internal.events e
		WHERE subscription_id = $1 AND e.id = d.event_uuid AND right(e.event_id, 1)::int % 2 = $2`, lane.id, odd)
	w.model.age(lane, odd)
}

// rebatch switches batches on or off.
func (w *world) rebatch(t *testing.T, lane *modelLane) {
	t.Helper()
	lane.batches = !lane.batches
	w.log("%s takes batches: %v", lane.kind.name, lane.batches)
	w.put(t, lane)
}

// endRests releases an endpoint's rest, or lets its probe through.
func (w *world) endRests(t *testing.T) {
	t.Helper()
	if w.random.IntN(2) == 0 {
		w.log("the rests' time has come")
		w.passHold(t)
		return
	}
	for _, lane := range w.live() {
		_, err := w.store.Holds.Release(t.Context(), topicName, lane.kind.name)
		w.log("release %s: %v", lane.kind.name, err)
		if lane.paused {
			require.ErrorIs(t, err, postgres.ErrPaused)
		} else {
			require.NoError(t, err)
		}
	}
}

// operate acts on one delivery as a person does, where there is one. What rests is left alone: when it is attempted the
// model does not say.
func (w *world) operate(t *testing.T, lane *modelLane) {
	t.Helper()
	var id int64
	var event string
	err := w.pool.QueryRow(t.Context(),
		`SELECT d.id, e.event_id FROM postrider_internal.deliveries d JOIN postrider_internal.events e ON e.id = d.event_uuid
		WHERE d.subscription_id = $1 ORDER BY d.id LIMIT 1 OFFSET $2`, lane.id, w.random.IntN(3)).Scan(&id, &event)
	if errors.Is(err, pgx.ErrNoRows) || lane.kind.rests {
		return
	}
	require.NoError(t, err)
	act := []string{"cancel", "dead-letter", "retry"}[w.random.IntN(3)]
	w.log("%s %s to %s", act, event, lane.kind.name)
	operator := w.store.Operator
	switch act {
	case "cancel":
		err = operator.Cancel(t.Context(), id)
	case "dead-letter":
		_, err = operator.DeadLetterNow(t.Context(), id)
	default:
		if err = operator.RetryNow(t.Context(), id); lane.paused {
			require.ErrorIs(t, err, postgres.ErrPaused)
			return
		}
	}
	require.NoError(t, err)
	w.model.owed[owing{event, lane.id}].operate(act)
}

// remake makes the event subscriptions anew that were deleted.
func (w *world) remake(t *testing.T) {
	t.Helper()
	for _, kind := range laneKinds {
		if !slices.ContainsFunc(w.live(), func(l *modelLane) bool { return l.kind == kind }) {
			w.log("make %s", kind.name)
			w.make(t, kind)
		}
	}
}

// endNode ends the node in the middle of its work and sets another one going. It dies, and may come back; or it is
// stopped, and cuts its requests. What was cut has not been attempted: a pause that began meanwhile finds it waiting.
func (w *world) endNode(t *testing.T, lane *modelLane) {
	t.Helper()
	hang, dies, pauses := w.random.IntN(2) == 0, w.random.IntN(3) > 0, w.random.IntN(3) == 0
	w.log("node %d ends: requests hang %v, dies %v", w.nodes, hang, dies)
	w.hang.Store(hang)
	ids, old := w.send(t), w.node
	if hang && slices.ContainsFunc(w.live(), func(l *modelLane) bool { return !l.paused && !l.kind.rests }) {
		within(t, "requests in flight", func() bool { return w.hung.Load() > 0 })
		if pauses {
			w.pauseOne(t, lane, false)
		}
	}
	w.owe(ids)
	if dies {
		old.die(t)
	} else {
		old.stop()
	}
	w.unhang()
	w.startNode(t)
	if dies && w.random.IntN(2) == 0 {
		w.requireModel(t)
		w.log("it comes back, with all it knows, and is stopped")
		old.stop()
	}
}

// drain ends all that keeps anything waiting. Whatever is left must come to its end.
func (w *world) drain(t *testing.T) {
	t.Helper()
	w.log("everything works again")
	for _, lane := range w.live() {
		w.setVerdict(lane, http.StatusOK)
		w.bundle.resume(t, lane.kind.name)
		w.model.resume(lane)
	}
	w.model.travel()
	within(t, "everything has ended", func() bool {
		for _, lane := range w.live() {
			_, err := w.store.Holds.Release(t.Context(), topicName, lane.kind.name)
			require.NoError(t, err)
		}
		w.bundle.travel(t)
		return w.count(t, "SELECT count(*) FROM postrider_internal.deliveries") == 0
	})
}

// seen is a delivery as the rows have it. answers are the statuses of its recorded attempts, in their order.
type seen struct {
	Event        string
	Subscription int64
	Lane         string
	Row          modelRow
	Answers      []int
}

const seenQuery = `
WITH ids AS (
    SELECT id AS delivery_id, subscription_id FROM postrider_internal.deliveries UNION ALL SELECT id, subscription_id
    FROM postrider_internal.delivery_history
), requests AS (
    SELECT delivery_id, number, status FROM postrider_internal.delivery_attempts WHERE delivery_id IS NOT NULL
    UNION ALL
    SELECT m.delivery_id, a.number, a.status FROM postrider_internal.delivery_attempts a
      JOIN postrider_internal.batch_members m ON m.batch_id = a.batch_id AND a.number <= coalesce(m.left_after,
          a.number)
)
SELECT d.event_id, ids.subscription_id, d.subscription, d.state, coalesce(d.reason, ''), coalesce(d.hold, ''),
       d.attempts,
       ARRAY (SELECT coalesce(r.status, 0) FROM requests r WHERE r.delivery_id = d.delivery_id ORDER BY r.number)
  FROM postrider.deliveries d JOIN ids USING (delivery_id)`

func (w *world) rows(t *testing.T) []seen {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), seenQuery)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s seen, err error) {
		return s, row.Scan(&s.Event, &s.Subscription, &s.Lane, &s.Row.State, &s.Row.Reason, &s.Row.Hold, &s.Row.Attempts,
			&s.Answers)
	})
	require.NoError(t, err)
	return list
}

// requireModel waits until the rows say what the model says, and looks at the invariants.
func (w *world) requireModel(t *testing.T) {
	t.Helper()
	var differences []string
	for deadline := time.Now().Add(patience); ; <-time.After(tick) {
		if differences = w.differences(w.rows(t)); len(differences) == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "%d deliveries are not what the model says:\n%s", len(differences),
			strings.Join(differences[:min(len(differences), 10)], "\n"))
	}
	w.requireInvariants(t)
}

func (w *world) differences(rows []seen) (differences []string) {
	missing := maps.Clone(w.owed)
	for _, s := range rows {
		o := owing{s.Event, s.Subscription}
		d, owed := missing[o]
		delete(missing, o)
		switch {
		case !owed:
			differences = append(differences, fmt.Sprintf("%s (%s) is owed twice, or to nobody: %+v", o, s.Lane, s.Row))
		case d.lane.kind.rests && !d.explains(s.Row, s.Answers):
			differences = append(differences, fmt.Sprintf("%s (%s) is %+v after the answers %v", o, s.Lane, s.Row, s.Answers))
		case !d.lane.kind.rests && s.Row.told(d.row) != d.row:
			differences = append(differences, fmt.Sprintf("%s (%s) is %+v and must be %+v", o, s.Lane, s.Row, d.row))
		}
	}
	for o, d := range missing {
		differences = append(differences, fmt.Sprintf("%s (%s) is lost", o, d.lane.kind.name))
	}
	slices.Sort(differences)
	return differences
}

// told is the row, but for one word: what was on hold for admission when its event subscription was paused, or came due
// a moment later, goes on saying so, and waits for the resume like the rest.
func (r modelRow) told(want modelRow) modelRow {
	if r.Hold == catalog.HoldAdmission && want.Hold == catalog.HoldPaused {
		r.Hold = catalog.HoldPaused
	}
	return r
}

// requireArrived: what is called delivered has been answered with a success.
func (w *world) requireArrived(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.rows(t) {
		if s.Row.State == "delivered" {
			require.True(t, w.arrived[s.Event+"/"+s.Lane], "%s was never delivered to %s", s.Event, s.Lane)
		}
	}
}
