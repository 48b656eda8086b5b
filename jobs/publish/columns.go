package publish

import (
	"embed"
	"slices"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sqlFile = postgres.SQLFiles(sqlFiles)

var (
	// publishStatement is T1. It returns what storedRow has, after the version of the catalog. plainPublishStatement is
	// its variant for groups without batches and rate limits that meet no obstacle; otherwise it stores nothing.
	publishStatement      = sqlFile("publish", publishArguments...)
	plainPublishStatement = sqlFile("publish_plain", publishArguments...)
	publishArguments      = slices.Concat([]string{"version", "node"}, destinationColumns.Names("destinations"),
		publishedColumns.Names("deliveries"), eventColumns.Names("events"))
	// storeRouteStatement is T1 of a request that is stored with a route.
	storeRouteStatement = sqlFile("storeroute", slices.Concat([]string{"version"},
		destinationColumns.Names("destinations"), eventColumns.Names("events"))...)
	// fanOutStatement is one step of a group of routes.
	fanOutStatement = sqlFile("fanout", slices.Concat([]string{"version", "node"},
		destinationColumns.Names("destinations"), routeColumns.Names("routes"), routedColumns.Names("deliveries"),
		matchedColumns.Names("matched"))...)

	readRoutesStatement = sqlFile("readroutes", "jobs", "events")
	collectStatement    = sqlFile("collect", "limit", "node", "events")
)

// publishedEvent is an event of a request.
type publishedEvent struct {
	*publishRequest
	i int
}

var eventColumns = postgres.Columns[publishedEvent]{
	postgres.Col("id", func(e publishedEvent) [16]byte { return e.Receipt.SystemIDs[e.i] }),
	postgres.Col("topic_id", func(e publishedEvent) int64 { return e.Receipt.Topic.ID }),
	postgres.NullTimeCol("event_time", func(e publishedEvent) time.Time { return e.Receipt.Events[e.i].Time }),
	postgres.Col("matched", func(e publishedEvent) int { return e.Receipt.Matched[e.i] }),
	postgres.Col("event_id", func(e publishedEvent) string { return e.Receipt.Events[e.i].ID }),
	postgres.Col("event_type", func(e publishedEvent) string { return e.Receipt.Events[e.i].Type }),
	postgres.Col("subject", func(e publishedEvent) string { return e.Receipt.Events[e.i].Subject }),
	postgres.Col("source", func(e publishedEvent) string { return e.Receipt.Events[e.i].Source }),
	postgres.Col("data_version", func(e publishedEvent) string { return e.Receipt.Events[e.i].DataVersion }),
	postgres.Col("schema", func(e publishedEvent) string { return string(e.Receipt.Events[e.i].Schema) }),
	postgres.Col("traceparent", func(e publishedEvent) string { return e.Receipt.Events[e.i].Trace.Parent }),
	postgres.Col("tracestate", func(e publishedEvent) string { return e.Receipt.Events[e.i].Trace.State }),
	// The last parameter of its statements: pgx's buffers grow, and copy the bodies, with each parameter after it.
	postgres.Col("body", func(e publishedEvent) []byte { return e.Receipt.Events[e.i].Body }),
}

// newDelivery is a delivery that a publish or a step of a route creates. Only a publish reserves workers, only a step
// has a route.
type newDelivery struct {
	event    [16]byte
	bytes    int
	sub      *catalog.Subscription
	admitted bool // it may have a job at once

	reserved bool      // a worker of this node is reserved for it
	route    *routing  // whose step creates it
	since    time.Time // when its event was accepted
}

var (
	deliveryColumns = postgres.Columns[newDelivery]{
		postgres.Col("event_uuid", func(d newDelivery) [16]byte { return d.event }),
		postgres.Col("topic_id", func(d newDelivery) int64 { return d.sub.TopicID }),
		postgres.Col("subscription_id", func(d newDelivery) int64 { return d.sub.ID }),
		postgres.Col("admitted", func(d newDelivery) bool { return d.admitted }),
		postgres.Col("event_bytes", func(d newDelivery) int { return d.bytes }),
	}
	publishedColumns = slices.Concat(deliveryColumns, postgres.Columns[newDelivery]{
		postgres.Col("reserved", func(d newDelivery) bool { return d.reserved }),
	})
	routedColumns = slices.Concat(deliveryColumns, postgres.Columns[newDelivery]{
		postgres.Col("route_id", func(d newDelivery) int64 { return d.route.ID }),
		postgres.Col("event_day", func(d newDelivery) time.Time { return d.route.EventDay }),
		postgres.Col("time_to_live_since", func(d newDelivery) time.Time { return d.since }),
	})
)

// destination is a topic (event subscription 0) or an event subscription of a publish.
type destination struct {
	topicID, subscriptionID, count int64
	// The keys of the probations that may hold its deliveries; nil for none.
	probationKey, otherProbationKey []byte
	batching, limited, pulled       bool
}

var destinationColumns = postgres.Columns[destination]{
	postgres.Col("topic_id", func(d destination) int64 { return d.topicID }),
	postgres.Col("subscription_id", func(d destination) int64 { return d.subscriptionID }),
	postgres.Col("count", func(d destination) int64 { return d.count }),
	postgres.Col("probation_key", func(d destination) []byte { return d.probationKey }),
	postgres.Col("other_probation_key", func(d destination) []byte { return d.otherProbationKey }),
	postgres.Col("batching", func(d destination) bool { return d.batching }),
	postgres.Col("limited", func(d destination) bool { return d.limited }),
	postgres.Col("pulled", func(d destination) bool { return d.pulled }),
}

// destinations are those of a group. They use the catalog that filtered it: it may be newer than the one in memory,
// which may not know a retry policy or an endpoint.
func destinations(group []*publishRequest) []destination {
	var list []destination
	snapshot := group[0].snapshot // that of all of them
	topics, counts, subscriptions := map[int64]int64{}, map[int64]int64{}, map[int64]*catalog.Subscription{}
	for _, req := range group {
		topics[req.Receipt.Topic.ID] += int64(len(req.Receipt.Events))
		for _, matching := range req.subscribers {
			for _, sub := range matching {
				counts[sub.ID]++
				subscriptions[sub.ID] = sub
			}
		}
	}
	for topic, n := range topics {
		list = append(list, destination{topicID: topic, count: n})
	}
	for id, sub := range subscriptions {
		list = append(list, destinationOf(snapshot, sub, counts[id]))
	}
	return list
}

func destinationOf(c *catalog.Snapshot, sub *catalog.Subscription, count int64) destination {
	keys := append(c.ProbationKeys(sub), nil, nil)
	return destination{
		topicID: sub.TopicID, subscriptionID: sub.ID, count: count, probationKey: keys[0], otherProbationKey: keys[1],
		batching: sub.Batching(), pulled: sub.Pulled(),
	}
}

// capacity returns the free capacity of the event subscriptions of a list, and notes which have a rate limit.
func (p *Publisher) capacity(list []destination) queue.Admissions {
	admitted := p.Traffic.Admit(subscriptionsOf(list))
	for i := range list {
		list[i].limited = admitted.Limited(list[i].subscriptionID)
	}
	return admitted
}

// subscriptionsOf lists the event subscriptions of a group.
func subscriptionsOf(list []destination) (ids []int64) {
	for _, d := range list {
		if d.subscriptionID != 0 {
			ids = append(ids, d.subscriptionID)
		}
	}
	return ids
}

var routeColumns = postgres.Columns[*routing]{
	postgres.Col("job_id", func(r *routing) int64 { return r.JobID }),
	postgres.Col("route_id", func(r *routing) int64 { return r.ID }),
	postgres.Col("finished", func(r *routing) bool { _, finished := r.position(); return finished }),
	postgres.Col("next_event", func(r *routing) int { next, _ := r.position(); return next }),
	postgres.Col("after_subscription", func(r *routing) int64 { return r.After }),
}

// matchedEvent is how many event subscriptions one event matched in one step of its route.
type matchedEvent struct {
	route        *routing
	event, count int
}

var matchedColumns = postgres.Columns[matchedEvent]{
	postgres.Col("route_id", func(m matchedEvent) int64 { return m.route.ID }),
	postgres.Col("event_uuid", func(m matchedEvent) [16]byte { return m.route.EventUUIDs[m.event] }),
	postgres.Col("event_day", func(m matchedEvent) time.Time { return m.route.EventDay }),
	postgres.Col("count", func(m matchedEvent) int { return m.count }),
}
