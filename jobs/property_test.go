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

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
)

var sequence = flag.Uint64("sequence", 0, "the sequence that TestRandomSequences runs")

// Random operations in random order, with nodes that die during them: the rows are those of the model. Every published
// event has one delivery for each matching event subscription, which ends once and as the model says, after as many
// attempts. At the end, when all endpoints work and nothing is paused, nothing is pending.
//
// A sequence that fails prints its seed and its steps; -sequence repeats it.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	sequences, steps := 1, 12
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

// world is the model beside the real system.
type world struct {
	*testnode.Node
	*model
	random *rand.Rand
	steps  []string
	events int

	node  *killableNode
	nodes int

	endpoint *endpoint
	hung     atomic.Int64    // requests that hang
	hang     atomic.Bool     // new requests hang
	mu       sync.Mutex      // of the following fields
	arrived  map[string]bool // "event/subscription" with a success
	statuses map[string]int  // by path
	release  chan struct{}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		Node: setup(t), model: newModel(), random: rand.New(rand.NewPCG(seed, seed)),
		arrived: map[string]bool{}, statuses: map[string]int{}, release: make(chan struct{}),
	}
	// Five events for all event subscriptions are routed.
	w.System = w.Beside(t, node.Options{Node: "publisher", RouteThreshold: 5*len(subscriptionKinds) - 1}).System
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sequence %d:\n%s", seed, strings.Join(w.steps, "\n"))
		}
	})
	const hours = `"stepsInSeconds": [3600],"tailInSeconds": 3600,
		"maxDeliveryAttempts": {"default": 4, "least": 1, "most": 30}`
	copyPolicy(t, w.Node, "ga-2021", "plain", `{`+hours+`, "probation": {"scope": "none"}}`)
	copyPolicy(t, w.Node, "ga-2019", "at-ttl", `{`+hours+`, "probation": {"scope": "none"}}`)
	copyPolicy(t, w.Node, "ga-2021", "probation", `{`+hours+`, "probation": {"trigger": 2}}`)
	copyPolicy(t, w.Node, "ga-2026", "both", `{`+hours+`, "probation": {"trigger": 2}}`)
	w.endpoint = newEndpoint(t, w.respond)
	t.Cleanup(w.unblock) // before the server closes and waits for its handlers
	for _, kind := range subscriptionKinds {
		w.create(t, kind)
	}
	w.startNode(t)
	return w
}

// respond is the handler of all endpoints; the path is the event subscription's name. A request that hangs has not
// arrived: its node dies before it is recorded.
func (w *world) respond(rw http.ResponseWriter, r request) {
	w.mu.Lock()
	status, release := w.statuses[r.uri], w.release
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

func (w *world) unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hang.Store(false)
	close(w.release)
	w.release = make(chan struct{})
}

func (w *world) startNode(t *testing.T) {
	t.Helper()
	w.nodes++
	w.node = startKillable(t, w.Node, fmt.Sprint("node-k", w.nodes), func(o *jobs.Options) {
		o.StopTimeout, o.OnAttempt = 50*time.Millisecond, nil
	})
}

// create creates an event subscription of a kind.
func (w *world) create(t *testing.T, kind *subscriptionKind) {
	t.Helper()
	subscription := &modelSubscription{kind: kind, batches: kind.batches}
	w.subscriptions = append(w.subscriptions, subscription)
	w.put(t, subscription)
	w.setStatus(subscription, modelStatuses[w.random.IntN(len(modelStatuses))])
	w.log("%s responds with %d", kind.name, subscription.status)
}

// put writes an event subscription's settings.
func (w *world) put(t *testing.T, subscription *modelSubscription) {
	t.Helper()
	changes := []func(*catalog.SubscriptionSpec){under(subscription.kind.policy)}
	if subscription.batches {
		changes = append(changes, batching(3, 64))
	}
	if subscription.kind.noDeadLetter {
		changes = append(changes, dropping)
	}
	subscription.id = subscribe(t, w.Node, subscription.kind.name, w.endpoint.URL+"/"+subscription.kind.name,
		both(changes...)).ID
}

func (w *world) setStatus(subscription *modelSubscription, status int) {
	subscription.status = status
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses["/"+subscription.kind.name] = status
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

// step does one random operation.
func (w *world) step(t *testing.T) {
	t.Helper()
	subscriptions := w.live()
	if len(subscriptions) == 0 {
		w.recreate(t)
		return
	}
	subscription := subscriptions[w.random.IntN(len(subscriptions))]
	switch n := w.random.IntN(100); {
	case n < 22:
		w.expect(w.send(t))
	case n < 36:
		w.log("makeDue")
		makeDue(t, w.Node)
		w.model.makeDue()
	case n < 48:
		w.setStatus(subscription, modelStatuses[w.random.IntN(len(modelStatuses))])
		w.log("%s responds with %d", subscription.kind.name, subscription.status)
	case n < 58:
		w.pauseOne(t, subscription, w.random.IntN(2) == 0)
	case n < 68:
		w.log("resume %s", subscription.kind.name)
		resume(t, w.Node, subscription.kind.name)
		w.model.resume(subscription)
	case n < 74:
		w.age(t, subscription)
	case n < 78:
		w.switchBatches(t, subscription)
	case n < 82:
		w.endProbations(t)
	case n < 87:
		w.log("delete %s", subscription.kind.name)
		require.NoError(t, w.System.Subscriptions.Delete(t.Context(), topicName, subscription.kind.name))
		w.model.remove(subscription)
	case n < 90:
		w.recreate(t)
	case n < 94:
		w.operate(t, subscription)
	default:
		w.endNode(t, subscription)
	}
}

// send publishes a few events, in one request or in one each.
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
		publishBody(t, w.Node, jsonType, "["+body+"]")
	}
	return ids
}

func (w *world) expect(ids []string) {
	for _, id := range ids {
		w.model.publish(id)
	}
}

func (w *world) pauseOne(t *testing.T, subscription *modelSubscription, stop bool) {
	t.Helper()
	w.log("pause %s, stop the time to live %v", subscription.kind.name, stop)
	_, err := w.System.Holds.Pause(t.Context(), topicName, subscription.kind.name, &stop)
	require.NoError(t, err)
	w.model.pause(subscription, stop)
}

// age ends the time to live of every other pending event: some members leave a batch, and others stay.
func (w *world) age(t *testing.T, subscription *modelSubscription) {
	t.Helper()
	odd := w.random.IntN(2)
	w.log("%s: the events whose number is %d modulo 2 are past their time to live", subscription.kind.name, odd)
	w.Exec(t, `UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - interval '2 days'
		FROM postrider_internal.events e
		WHERE subscription_id = $1 AND e.id = d.event_uuid AND right(e.event_id, 1)::int % 2 = $2`, subscription.id, odd)
	w.model.age(subscription, odd)
}

// switchBatches switches batches on or off.
func (w *world) switchBatches(t *testing.T, subscription *modelSubscription) {
	t.Helper()
	subscription.batches = !subscription.batches
	w.log("%s has batches: %v", subscription.kind.name, subscription.batches)
	w.put(t, subscription)
}

// endProbations releases the endpoints in probation, or their probes.
func (w *world) endProbations(t *testing.T) {
	t.Helper()
	if w.random.IntN(2) == 0 {
		w.log("the holds of probations end")
		passHold(t, w.Node)
		return
	}
	for _, subscription := range w.live() {
		_, err := w.System.Holds.Release(t.Context(), topicName, subscription.kind.name)
		w.log("release %s: %v", subscription.kind.name, err)
		if subscription.paused {
			require.ErrorIs(t, err, postgres.ErrPaused)
		} else {
			require.NoError(t, err)
		}
	}
}

// operate does an operator's action on one delivery, if there is one. Not with probation: the model does not know the
// times of those attempts.
func (w *world) operate(t *testing.T, subscription *modelSubscription) {
	t.Helper()
	var id int64
	var event string
	err := w.Pool.QueryRow(t.Context(),
		`SELECT d.id, e.event_id FROM postrider_internal.deliveries d JOIN postrider_internal.events e ON e.id = d.event_uuid
		WHERE d.subscription_id = $1 ORDER BY d.id LIMIT 1 OFFSET $2`, subscription.id, w.random.IntN(3)).Scan(&id, &event)
	if errors.Is(err, pgx.ErrNoRows) || subscription.kind.probation {
		return
	}
	require.NoError(t, err)
	act := []string{"cancel", "dead-letter", "retry"}[w.random.IntN(3)]
	w.log("%s %s to %s", act, event, subscription.kind.name)
	operator := w.System.Operator
	switch act {
	case "cancel":
		err = operator.Cancel(t.Context(), id)
	case "dead-letter":
		_, err = operator.DeadLetterNow(t.Context(), id)
	default:
		if err = operator.RetryNow(t.Context(), id); subscription.paused {
			require.ErrorIs(t, err, postgres.ErrPaused)
			return
		}
	}
	require.NoError(t, err)
	w.model.deliveries[deliveryKey{event, subscription.id}].operate(act)
}

// recreate creates the deleted event subscriptions again.
func (w *world) recreate(t *testing.T) {
	t.Helper()
	for _, kind := range subscriptionKinds {
		if !slices.ContainsFunc(w.live(), func(l *modelSubscription) bool { return l.kind == kind }) {
			w.log("create %s", kind.name)
			w.create(t, kind)
		}
	}
}

// endNode ends the node during its work and starts another one. It dies, and may return; or it is stopped, and cuts its
// requests. A cut request is no attempt: a pause that began meanwhile holds the delivery.
func (w *world) endNode(t *testing.T, subscription *modelSubscription) {
	t.Helper()
	hang, dies, pauses := w.random.IntN(2) == 0, w.random.IntN(3) > 0, w.random.IntN(3) == 0
	w.log("node %d ends: requests hang %v, dies %v", w.nodes, hang, dies)
	w.hang.Store(hang)
	ids, old := w.send(t), w.node
	if hang && slices.ContainsFunc(w.live(), func(l *modelSubscription) bool { return !l.paused && !l.kind.probation }) {
		testnode.Within(t, "requests in flight", func() bool { return w.hung.Load() > 0 })
		if pauses {
			w.pauseOne(t, subscription, false)
		}
	}
	w.expect(ids)
	if dies {
		old.kill(t)
	} else {
		old.stop()
	}
	w.unblock()
	w.startNode(t)
	if dies && w.random.IntN(2) == 0 {
		w.requireModel(t)
		w.log("it returns, and is stopped")
		old.stop()
	}
}

// drain ends everything that holds deliveries, so that all of them end.
func (w *world) drain(t *testing.T) {
	t.Helper()
	w.log("everything works again")
	for _, subscription := range w.live() {
		w.setStatus(subscription, http.StatusOK)
		resume(t, w.Node, subscription.kind.name)
		w.model.resume(subscription)
	}
	w.model.makeDue()
	testnode.Within(t, "everything has ended", func() bool {
		for _, subscription := range w.live() {
			_, err := w.System.Holds.Release(t.Context(), topicName, subscription.kind.name)
			require.NoError(t, err)
		}
		makeDue(t, w.Node)
		return w.Pending(t, "") == 0
	})
}

// seen is a delivery in the rows. Statuses are those of its recorded attempts, in order.
type seen struct {
	Event        string
	Subscription int64
	Name         string
	Row          modelRow
	Statuses     []int
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
	rows, err := w.Pool.Query(t.Context(), seenQuery)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s seen, err error) {
		return s, row.Scan(&s.Event, &s.Subscription, &s.Name, &s.Row.State, &s.Row.Reason, &s.Row.Hold, &s.Row.Attempts,
			&s.Statuses)
	})
	require.NoError(t, err)
	return list
}

// requireModel waits until the rows are those of the model, and checks the invariants.
func (w *world) requireModel(t *testing.T) {
	t.Helper()
	var differences []string
	for deadline := time.Now().Add(testnode.Timeout); ; <-time.After(tick) {
		if differences = w.differences(w.rows(t)); len(differences) == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "%d deliveries differ from the model:\n%s", len(differences),
			strings.Join(differences[:min(len(differences), 10)], "\n"))
	}
	w.RequireInvariants(t)
}

func (w *world) differences(rows []seen) (differences []string) {
	missing := maps.Clone(w.deliveries)
	for _, s := range rows {
		o := deliveryKey{s.Event, s.Subscription}
		d, known := missing[o]
		delete(missing, o)
		switch {
		case !known:
			differences = append(differences, fmt.Sprintf("%s (%s) exists twice, or is not in the model: %+v", o, s.Name, s.Row))
		case d.subscription.kind.probation && !d.explains(s.Row, s.Statuses):
			differences = append(differences, fmt.Sprintf("%s (%s) is %+v after the statuses %v", o, s.Name, s.Row, s.Statuses))
		case !d.subscription.kind.probation && s.Row.normalized(d.shown()) != d.shown():
			differences = append(differences, fmt.Sprintf("%s (%s) is %+v and must be %+v", o, s.Name, s.Row, d.shown()))
		}
	}
	for o, d := range missing {
		differences = append(differences, fmt.Sprintf("%s (%s) is lost", o, d.subscription.kind.name))
	}
	slices.Sort(differences)
	return differences
}

// shown returns the row as the views show it: a retry whose time has not come waits for the resume already.
func (d *modelDelivery) shown() modelRow {
	row := d.row
	if row.State == "pending" && d.subscription.paused {
		row.Hold = catalog.HoldPaused
	}
	return row
}

// normalized returns the row with one difference removed: a delivery that was held for admission when its event
// subscription was paused, or became due then, keeps that hold until the resume.
func (r modelRow) normalized(want modelRow) modelRow {
	if r.Hold == catalog.HoldAdmission && want.Hold == catalog.HoldPaused {
		r.Hold = catalog.HoldPaused
	}
	return r
}

// requireArrived requires that every delivered event got a success.
func (w *world) requireArrived(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.rows(t) {
		if s.Row.State == "delivered" {
			require.True(t, w.arrived[s.Event+"/"+s.Name], "%s was never delivered to %s", s.Event, s.Name)
		}
	}
}

var faults = flag.Bool("faults", false, "run the long fault tests")
