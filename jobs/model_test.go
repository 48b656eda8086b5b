package jobs_test

import (
	"fmt"
	"net/http"
	"slices"

	"postrider/policy"
)

// model is what postrider promises, in memory and without a clock: the deliveries, which of them wait for a retry or
// for the end of a pause, and how each ends. It has no jobs, nodes, batches or transactions: crashes, batches and races
// must not change the result.
type model struct {
	subscriptions []*modelSubscription // deleted ones, too
	deliveries    map[deliveryKey]*modelDelivery
}

// deliveryKey identifies a delivery.
type deliveryKey struct {
	event        string
	subscription int64
}

func (o deliveryKey) String() string { return fmt.Sprintf("%s to %d", o.event, o.subscription) }

// modelSubscription is an event subscription.
type modelSubscription struct {
	kind    *subscriptionKind
	id      int64
	status  int // of its endpoint's responses
	paused  bool
	stopped bool // the pause stops the time to live
	deleted bool
	batches bool
}

// subscriptionKind has an event subscription's settings, and the statuses that its policy never retries.
type subscriptionKind struct {
	name, policy string
	never        []int
	noDeadLetter bool
	batches      bool
	// probation: its policy puts the endpoint in probation after failures, so which deliveries are attempted depends on
	// their order. The model knows how these deliveries may end, not when.
	probation bool
}

const modelAttempts = 4 // the limit of the policies in use

// subscriptionKinds have backoff steps of an hour and a time to live of a day, so that time changes nothing during a
// sequence.
var subscriptionKinds = []*subscriptionKind{
	{name: "plain", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}},
	{name: "at-ttl", policy: "at-ttl", never: []int{http.StatusBadRequest}},
	{name: "dropping", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}, noDeadLetter: true},
	{name: "batches", policy: "plain", never: []int{http.StatusBadRequest, http.StatusNotFound}, batches: true},
	{name: "probation", policy: "probation", never: []int{http.StatusBadRequest, http.StatusNotFound}, probation: true},
	{name: "both", policy: "both", never: []int{http.StatusBadRequest}, probation: true},
}

var modelStatuses = []int{
	http.StatusOK, http.StatusOK, http.StatusServiceUnavailable, http.StatusServiceUnavailable,
	http.StatusInternalServerError,
	http.StatusBadRequest, http.StatusNotFound,
}

type modelDelivery struct {
	subscription *modelSubscription
	waits        bool // for the time of its retry
	aged         bool // past its time to live
	row          modelRow
}

// modelRow is the expected row of postrider.deliveries.
type modelRow struct {
	State, Reason, Hold string
	Attempts            int
}

func newModel() *model { return &model{deliveries: map[deliveryKey]*modelDelivery{}} }

// publish creates a delivery for every event subscription.
func (m *model) publish(event string) {
	for _, subscription := range m.live() {
		d := &modelDelivery{subscription: subscription, row: modelRow{State: "pending"}}
		m.deliveries[deliveryKey{event, subscription.id}] = d
		d.checkDue()
	}
}

func (m *model) live() (live []*modelSubscription) {
	for _, subscription := range m.subscriptions {
		if !subscription.deleted {
			live = append(live, subscription)
		}
	}
	return live
}

// of calls do for the pending deliveries of an event subscription; nil = all.
func (m *model) of(subscription *modelSubscription, do func(*modelDelivery)) {
	for _, d := range m.deliveries {
		if d.row.State == "pending" && (subscription == nil || d.subscription == subscription) {
			do(d)
		}
	}
}

// checkDue is the due check of a delivery.
func (d *modelDelivery) checkDue() {
	d.waits = false
	d.row.Hold = ""
	switch {
	case d.subscription.paused && d.subscription.stopped:
		d.row.Hold = "paused"
	case d.aged:
		d.abandon(policy.ReasonTimeToLiveExceeded)
	case d.subscription.paused:
		d.row.Hold = "paused"
	default:
		d.attempt()
	}
}

func (d *modelDelivery) attempt() {
	d.row.Attempts++
	switch status := d.subscription.status; {
	case status == http.StatusOK:
		d.row.State = "delivered"
	case d.row.Attempts == modelAttempts:
		d.abandon(policy.ReasonMaxDeliveryAttemptsExceeded)
	case d.subscription.kind.neverRetries(status) && status == http.StatusBadRequest:
		d.abandon(policy.ReasonHTTPBadRequest)
	case d.subscription.kind.neverRetries(status):
		d.abandon(policy.ReasonClientError)
	default:
		d.waits = true
	}
}

func (k *subscriptionKind) neverRetries(status int) bool { return slices.Contains(k.never, status) }

func (d *modelDelivery) abandon(reason policy.Reason) {
	d.row.State, d.row.Reason, d.row.Hold = "dead_lettered", string(reason), ""
	if d.subscription.kind.noDeadLetter {
		d.row.State = "dropped"
	}
}

// operate does an operator's action.
func (d *modelDelivery) operate(act string) {
	switch act {
	case "cancel":
		d.row.State, d.row.Reason, d.row.Hold = "canceled", string(policy.ReasonCanceledByOperator), ""
	case "dead-letter":
		d.row.State, d.row.Reason, d.row.Hold = "dead_lettered", string(policy.ReasonDeadLetteredByOperator), ""
	default:
		d.checkDue()
	}
}

// makeDue makes all waiting retries due.
func (m *model) makeDue() {
	m.of(nil, func(d *modelDelivery) {
		if d.waits {
			d.checkDue()
		}
	})
}

// recheck repeats the due check of all deliveries that do not wait for a retry, because the state of their event
// subscription has changed.
func (m *model) recheck(subscription *modelSubscription) {
	m.of(subscription, func(d *modelDelivery) {
		if !d.waits {
			d.checkDue()
		}
	})
}

func (m *model) pause(subscription *modelSubscription, stop bool) {
	subscription.paused, subscription.stopped = true, stop
	m.recheck(subscription)
}

func (m *model) resume(subscription *modelSubscription) {
	subscription.paused, subscription.stopped = false, false
	m.recheck(subscription)
}

// age ends the time to live of the events whose number is even (0) or odd (1).
func (m *model) age(subscription *modelSubscription, odd int) {
	for o, d := range m.deliveries {
		if d.subscription == subscription && int(o.event[len(o.event)-1]-'0')%2 == odd {
			d.aged = true
		}
	}
	m.recheck(subscription)
}

func (m *model) remove(subscription *modelSubscription) {
	subscription.deleted = true
	m.of(subscription, func(d *modelDelivery) {
		d.row.State, d.row.Reason, d.row.Hold = "canceled", string(policy.ReasonEventSubscriptionDeleted), ""
	})
}

// explains reports whether the rows of a delivery with probation are possible: its end follows from its recorded
// statuses, in order.
func (d *modelDelivery) explains(row modelRow, statuses []int) bool {
	replay := &modelDelivery{subscription: &modelSubscription{kind: d.subscription.kind}, row: modelRow{State: "pending"}}
	for _, status := range statuses {
		if replay.row.State != "pending" {
			return false // attempted after its end
		}
		replay.subscription.status = status
		replay.attempt()
	}
	if replay.row == (modelRow{State: row.State, Reason: row.Reason, Attempts: row.Attempts}) {
		return row.Hold == "" || row.State == "pending"
	}
	abandoned := row.Reason == string(policy.ReasonTimeToLiveExceeded) && d.aged ||
		row.Reason == string(policy.ReasonEventSubscriptionDeleted) && d.subscription.deleted
	return replay.row.State == "pending" && replay.row.Attempts == row.Attempts && abandoned
}
