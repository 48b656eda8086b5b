package publish

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// errObstacle: the plain statement stored nothing, because a destination is on hold or its endpoint has failed lately.
var errObstacle = errors.New("a destination is on hold or fails")

// obstacleTime is how long publishes to a destination of a group with an obstacle use the full statement at once.
const obstacleTime = time.Minute

// obstacles remembers which event subscriptions were on hold, or had a failing endpoint. It only saves round trips: the
// plain statement checks them.
type obstacles struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

// note remembers the destinations of a group that met an obstacle, and forgets those that met none lately.
func (o *obstacles) note(group []destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(o.until, func(_ int64, until time.Time) bool { return now.After(until) })
	until := now.Add(obstacleTime)
	for _, id := range subscriptionsOf(group) {
		o.until[id] = until
	}
}

// known reports whether any destination had an obstacle lately.
func (o *obstacles) known(group []destination) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(group, func(d destination) bool {
		until, met := o.until[d.subscriptionID]
		return met && !now.After(until)
	})
}

// publishStatement is T1 of a group. The plain one must not be used with keys: they would be stored without their
// events.
func (p *Publisher) publishStatement(group []*publishRequest, to []destination) string {
	special := func(d destination) bool { return d.batching || d.limited || d.pulled }
	if group[0].keyed || slices.ContainsFunc(to, special) || p.obstacles.known(to) {
		return publishStatement
	}
	return plainPublishStatement
}
