package delivery

import (
	"context"
	"math"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

// valuesAhead bounds the bodies that one cut reads to compare their Dynamic header values.
const valuesAhead = 8 << 20

// sameHeaders groups open deliveries by the values of their Dynamic headers, in the order of each group's first one.
// All members of a batch must have the same, because a request has one value of each header. It takes as many
// deliveries as valuesAhead allows. The others are left to the next cutter, and so is the last one if more may be open
// than was read.
func (c *cut) sameHeaders(ctx context.Context, open []openDelivery) (groups [][]openDelivery, err error) {
	n, bytes := 0, 0
	for n < len(open) && (n == 0 || bytes+open[n].bytes <= valuesAhead) {
		bytes += open[n].bytes
		n++
	}
	if n == len(open) && n >= cutAhead {
		n--
	}
	values, err := c.headerValues(ctx, open[:n])
	if err != nil {
		return nil, err
	}
	of := map[string]int{}
	for _, o := range open[:n] {
		i, found := of[values[o.id]]
		if !found {
			i = len(groups)
			of[values[o.id]] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], o)
	}
	return groups, nil
}

// headerValues reads one body at a time. A delivery without an event has none. Values that are too long to be sent
// differ here: that separates events which could be sent together, and never the other way around.
func (c *cut) headerValues(ctx context.Context, open []openDelivery) (map[int64]string, error) {
	rows, err := c.tx.Query(ctx, valuesStatement, postgres.Column(open, func(o openDelivery) int64 { return o.id }))
	if err != nil {
		return nil, err
	}
	values := make(map[int64]string, len(open))
	return values, eachMember(rows, func(m *queue.Member) {
		view := catalog.EventView(c.sub.Topic, &m.Event)
		values[m.DeliveryID] = c.sub.Headers.DynamicValues(&view, math.MaxInt)
	})
}
