package publish

import (
	"errors"
	"slices"
	"time"
)

// errObstacle: the plain statement stored nothing, because a destination is on hold or its endpoint has failed lately.
var errObstacle = errors.New("a destination is on hold or fails")

// obstacleTime is how long publishes to a destination of a group with an obstacle use the full statement at once.
const obstacleTime = time.Minute

// publishStatement is T1 of a group. The plain one must not be used with keys: they would be stored without their
// events.
func (p *Publisher) publishStatement(group []*publishRequest, to []destination) string {
	special := func(d destination) bool { return d.batching || d.limited || d.pulled }
	if group[0].keyed || slices.ContainsFunc(to, special) || p.obstacles.Has(subscriptionsOf(to)...) {
		return publishStatement
	}
	return plainPublishStatement
}
