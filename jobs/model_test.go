package jobs_test

import (
	"fmt"
	"net/http"
	"slices"

	"postrider/policy"
)

// model is what postrider promises, told again in memory and without a clock: what is owed to whom, what waits for its
// retry, what waits for a pause to end, and how each delivery ends. It knows nothing of jobs, nodes, batches or
// transactions. What nodes that die, batches and races do to the rows must not show in it.
type model struct {
	lanes []*modelLane // of deleted event subscriptions, too
	owed  map[owing]*modelDelivery
}

// owing names a delivery.
type owing struct {
	event        string
	subscription int64
}

func (o owing) String() string { return fmt.Sprintf("%s to %d", o.event, o.subscription) }

// modelLane is an event subscription.
type modelLane struct {
	kind    *laneKind
	id      int64
	verdict int // status that its endpoint answers with
	paused  bool
	stopped bool // the pause stops the time to live
	deleted bool
	batches bool
}

// laneKind is how an event subscription is set up, and what is never retried under its policy.
type laneKind struct {
	name, policy string
	never        []int
	noDeadLetter bool
	batches      bool
	// rests: its policy gives the endpoint a rest after failures, and which of its deliveries are attempted depends on who
	// comes first. The model knows of its deliveries what they are and how they may end, not when.
	rests bool
}

const modelAttempts = 4 // the limit of the policies in use

// laneKinds: steps of an hour and a time to live of a day, so that nothing happens by itself while a sequence runs.
var laneKinds = []*laneKind{
	{name: "plain", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}},
	{name: "at-ttl", policy: "at-ttl", never: []int{http.StatusBadRequest}},
	{name: "dropping", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}, noDeadLetter: true},
	{name: "batches", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}, batches: true},
	{name: "rests", policy: "resting", never: []int{http.StatusBadRequest, http.StatusNotFound}, rests: true},
}

var modelVerdicts = []int{
	http.StatusOK, http.StatusOK, http.StatusServiceUnavailable, http.StatusServiceUnavailable,
	http.StatusInternalServerError,
	http.StatusBadRequest, http.StatusNotFound,
}

type modelDelivery struct {
	lane  *modelLane
	waits bool // for the time of its retry
	aged  bool // past its time to live
	row   modelRow
}

// modelRow is what postrider.deliveries must show.
type modelRow struct {
	State, Reason, Hold string
	Attempts            int
}

func newModel() *model { return &model{owed: map[owing]*modelDelivery{}} }

// publish owes an event to every event subscription there is.
func (m *model) publish(event string) {
	for _, lane := range m.live() {
		d := &modelDelivery{lane: lane, row: modelRow{State: "pending"}}
		m.owed[owing{event, lane.id}] = d
		d.turn()
	}
}

func (m *model) live() (live []*modelLane) {
	for _, lane := range m.lanes {
		if !lane.deleted {
			live = append(live, lane)
		}
	}
	return live
}

// of calls do for the unfinished deliveries of an event subscription, nil for all.
func (m *model) of(lane *modelLane, do func(*modelDelivery)) {
	for _, d := range m.owed {
		if d.row.State == "pending" && (lane == nil || d.lane == lane) {
			do(d)
		}
	}
}

// turn is what happens when a delivery's time has come.
func (d *modelDelivery) turn() {
	d.waits = false
	d.row.Hold = ""
	switch {
	case d.lane.paused && d.lane.stopped:
		d.row.Hold = "paused"
	case d.aged:
		d.giveUp(policy.ReasonTimeToLiveExceeded)
	case d.lane.paused:
		d.row.Hold = "paused"
	default:
		d.attempt()
	}
}

func (d *modelDelivery) attempt() {
	d.row.Attempts++
	switch verdict := d.lane.verdict; {
	case verdict == http.StatusOK:
		d.row.State = "delivered"
	case d.row.Attempts == modelAttempts:
		d.giveUp(policy.ReasonMaxDeliveryAttemptsExceeded)
	case d.lane.kind.neverRetries(verdict) && verdict == http.StatusBadRequest:
		d.giveUp(policy.ReasonHTTPBadRequest)
	case d.lane.kind.neverRetries(verdict):
		d.giveUp(policy.ReasonClientError)
	default:
		d.waits = true
	}
}

func (k *laneKind) neverRetries(status int) bool { return slices.Contains(k.never, status) }

func (d *modelDelivery) giveUp(reason policy.Reason) {
	d.row.State, d.row.Reason, d.row.Hold = "dead_lettered", string(reason), ""
	if d.lane.kind.noDeadLetter {
		d.row.State = "dropped"
	}
}

// operate is what a person does to it.
func (d *modelDelivery) operate(act string) {
	switch act {
	case "cancel":
		d.row.State, d.row.Reason, d.row.Hold = "canceled", string(policy.ReasonCanceledByOperator), ""
	case "dead-letter":
		d.row.State, d.row.Reason, d.row.Hold = "dead_lettered", string(policy.ReasonDeadLetteredByOperator), ""
	default:
		d.turn()
	}
}

// travel brings what waits for its retry to its turn.
func (m *model) travel() {
	m.of(nil, func(d *modelDelivery) {
		if d.waits {
			d.turn()
		}
	})
}

// looksAgain: whatever is not waiting for its retry has its turn, as its event subscription's state has changed.
func (m *model) looksAgain(lane *modelLane) {
	m.of(lane, func(d *modelDelivery) {
		if !d.waits {
			d.turn()
		}
	})
}

func (m *model) pause(lane *modelLane, stop bool) {
	lane.paused, lane.stopped = true, stop
	m.looksAgain(lane)
}

func (m *model) resume(lane *modelLane) {
	lane.paused, lane.stopped = false, false
	m.looksAgain(lane)
}

// age ends the time to live of the events whose number is odd modulo 2.
func (m *model) age(lane *modelLane, odd int) {
	for o, d := range m.owed {
		if d.lane == lane && int(o.event[len(o.event)-1]-'0')%2 == odd {
			d.aged = true
		}
	}
	m.looksAgain(lane)
}

func (m *model) remove(lane *modelLane) {
	lane.deleted = true
	m.of(lane, func(d *modelDelivery) {
		d.row.State, d.row.Reason, d.row.Hold = "canceled", string(policy.ReasonEventSubscriptionDeleted), ""
	})
}

// explains says whether the rows of a delivery whose endpoint may rest can have come about: its end follows from the
// answers that were recorded for it, in their order.
func (d *modelDelivery) explains(row modelRow, answers []int) bool {
	replay := &modelDelivery{lane: &modelLane{kind: d.lane.kind}, row: modelRow{State: "pending"}}
	for _, status := range answers {
		if replay.row.State != "pending" {
			return false // attempted after its end
		}
		replay.lane.verdict = status
		replay.attempt()
	}
	if replay.row == (modelRow{State: row.State, Reason: row.Reason, Attempts: row.Attempts}) {
		return row.Hold == "" || row.State == "pending"
	}
	gaveUp := row.Reason == string(policy.ReasonTimeToLiveExceeded) && d.aged ||
		row.Reason == string(policy.ReasonEventSubscriptionDeleted) && d.lane.deleted
	return replay.row.State == "pending" && replay.row.Attempts == row.Attempts && gaveUp
}
