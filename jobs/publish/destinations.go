package publish

import (
	"iter"

	"postrider/catalog"
)

// destinationColumns are one entry for each topic (event subscription 0) and each event subscription of a publish: what
// it adds to their counts, and what its deliveries go by.
type destinationColumns struct {
	topics, subscriptions, counts []int64
	restKeys                      [][]byte
	batching                      []bool
}

// publishedDestinations are those of a group. They go by the catalogue that filtered it: it may be newer than the one
// in memory, and what is resting under a retry policy or at an endpoint that this one does not know yet would be
// missed.
func publishedDestinations(group []*publishRequest) *destinationColumns {
	catalogue := group[0].catalogue // that of all of them
	topics, counts, subscriptions := map[int64]int64{}, map[int64]int64{}, map[int64]*catalog.Subscription{}
	for _, req := range group {
		topics[req.Receipt.Topic.ID] += int64(len(req.Receipt.Events))
		for _, wanting := range req.wanting {
			for _, sub := range wanting {
				counts[sub.ID]++
				subscriptions[sub.ID] = sub
			}
		}
	}
	c := &destinationColumns{}
	for topic, n := range topics {
		c.add(topic, 0, n, nil, false)
	}
	for id, sub := range subscriptions {
		c.add(sub.TopicID, id, counts[id], catalogue.ProbationKey(sub), sub.Batching())
	}
	return c
}

func (c *destinationColumns) add(topic, subscription, count int64, restKey []byte, batching bool) {
	c.topics = append(c.topics, topic)
	c.subscriptions = append(c.subscriptions, subscription)
	c.counts = append(c.counts, count)
	c.restKeys = append(c.restKeys, restKey)
	c.batching = append(c.batching, batching)
}

// wantedBy yields an event subscription for each delivery that a group owes.
func wantedBy(group []*publishRequest) iter.Seq[*catalog.Subscription] {
	return func(yield func(*catalog.Subscription) bool) {
		for _, req := range group {
			for _, wanting := range req.wanting {
				for _, sub := range wanting {
					if !yield(sub) {
						return
					}
				}
			}
		}
	}
}
