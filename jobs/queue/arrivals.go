package queue

import (
	"maps"
	"slices"
	"sync"
)

// Arrivals wakes the receivers of this node that wait for deliveries of an event subscription. They wait in a line:
// each delivery that arrives wakes the first one that is not awake.
type Arrivals struct {
	mu    sync.Mutex
	lines map[int64][]*Waiter
	other chan struct{}
}

// Waiter is a receiver's place in the line of its event subscription.
type Waiter struct {
	subscription int64
	woken        chan struct{}
}

// NewArrivals returns Arrivals without receivers.
func NewArrivals() *Arrivals {
	return &Arrivals{lines: map[int64][]*Waiter{}, other: make(chan struct{}, 1)}
}

// Wait takes the last place in the line of an event subscription. It is woken at once if the line was empty.
func (a *Arrivals) Wait(subscription int64) *Waiter {
	w := &Waiter{subscription: subscription, woken: make(chan struct{}, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lines[subscription]) == 0 {
		Signal(w.woken)
	}
	a.lines[subscription] = append(a.lines[subscription], w)
	return w
}

// Woken receives when there may be something to receive.
func (w *Waiter) Woken() <-chan struct{} { return w.woken }

// Leave gives the place up. A wake-up that the receiver did not use, or found more than it takes, wakes the next one.
func (a *Arrivals) Leave(w *Waiter, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := slices.DeleteFunc(a.lines[w.subscription], func(other *Waiter) bool { return other == w })
	if len(line) == 0 {
		delete(a.lines, w.subscription)
		return
	}
	a.lines[w.subscription] = line
	if more || len(w.woken) > 0 {
		wakeFirst(line)
	}
}

// Arrived wakes a receiver of each event subscription.
func (a *Arrivals) Arrived(subscriptions ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, subscription := range subscriptions {
		wakeFirst(a.lines[subscription])
	}
}

// wakeFirst wakes the first receiver that is not awake.
func wakeFirst(line []*Waiter) {
	if i := slices.IndexFunc(line, func(w *Waiter) bool { return len(w.woken) == 0 }); i >= 0 {
		Signal(line[i].woken)
	}
}

// Waiting lists the event subscriptions that receivers wait for.
func (a *Arrivals) Waiting() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.lines))
}

// ArrivedElsewhere requests a search for deliveries that arrived on another node.
func (a *Arrivals) ArrivedElsewhere() { Signal(a.other) }

// Elsewhere receives when such a search was requested.
func (a *Arrivals) Elsewhere() <-chan struct{} { return a.other }
