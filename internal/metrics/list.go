package metrics

import "github.com/prometheus/client_golang/prometheus"

// Scope is what a metric covers, and so how the values of several nodes are combined.
type Scope string

// The scopes.
const (
	// Total: every node reports the same value, which counts all nodes since the process started.
	Total Scope = "total"
	// Shared: every node reports the same value of the present.
	Shared Scope = "shared"
	// Node: the value of this node. Add it up over the nodes.
	Node Scope = "node"
)

var scopeHelp = map[Scope]string{
	Total:  " Counts all nodes since this process started; every node reports the same value.",
	Shared: " Covers all nodes; every node reports the same value.",
	Node:   " Of this node.",
}

// Metric describes a metric.
type Metric struct {
	Scope Scope
	Name  string
	// Type is counter, gauge or histogram.
	Type   string
	Help   string
	Labels []string

	description *prometheus.Desc
}

var all []*Metric

// List returns all metrics that a node can serve, without Go's and the process's.
func List() []*Metric { return all }

func describe(kind string, scope Scope, name, help string, labels ...string) *Metric {
	name = "postrider_" + name
	m := &Metric{
		Scope: scope, Name: name, Type: kind, Help: help, Labels: labels,
		description: prometheus.NewDesc(name, help+scopeHelp[scope], labels, nil),
	}
	all = append(all, m)
	return m
}

func counter(scope Scope, name, help string, labels ...string) *Metric {
	return describe("counter", scope, name, help, labels...)
}

func gauge(scope Scope, name, help string, labels ...string) *Metric {
	return describe("gauge", scope, name, help, labels...)
}

func histogram(scope Scope, name, help string, labels ...string) *Metric {
	return describe("histogram", scope, name, help, labels...)
}

// Metrics of event subscriptions have Event Grid's names in Prometheus' spelling: PublishSuccessCount is
// postrider_publish_success_total, a time InMs is in seconds.
//
// Source: Microsoft, Monitoring data reference for Azure Event Grid's push event delivery, 2024-03-20.
var (
	publishSuccess  = counter(Total, "publish_success_total", "Events stored (PublishSuccessCount).", "topic")
	duplicateEvents = counter(Total, "duplicate_event_total", "Events published again and recognized as duplicates.",
		"topic")
	matchedEvents = counter(Total, "matched_event_total",
		"Deliveries created: one for each matched event subscription and each redelivery (MatchedEventCount).",
		"topic", "event_subscription")
	deliverySuccess = counter(Total, "delivery_success_total", "Deliveries that succeeded (DeliverySuccessCount).",
		"topic", "event_subscription")
	attemptFailures = counter(Total, "delivery_attempt_fail_total",
		"Delivery attempts that failed, by outcome (DeliveryAttemptFailCount).", "topic", "event_subscription", "error")
	endpointDuration = histogram(Total, "destination_processing_duration_seconds",
		"Duration of requests to endpoints (DestinationProcessingDurationInMs). The sum is an estimate: it takes the "+
			"middle of each bucket.", "topic", "event_subscription")
	// ends are the metrics of deliveries that ended without a success, by kind.
	ends = map[string]*Metric{
		"dead_lettered": counter(Total, "dead_lettered_total",
			"Deliveries that became dead letters (DeadLetteredCount).", "topic", "event_subscription", "reason"),
		"dropped": counter(Total, "dropped_event_total",
			"Deliveries that failed for good and left no dead letter (DroppedEventCount).",
			"topic", "event_subscription", "reason"),
		"canceled": counter(Total, "canceled_delivery_total", "Deliveries that were canceled.",
			"topic", "event_subscription", "reason"),
	}
)

var (
	backlog = gauge(Shared, "backlog_deliveries", "Pending deliveries.", "topic", "event_subscription")
	oldest  = gauge(Shared, "oldest_undelivered_age_seconds", "Age of the oldest pending delivery.",
		"topic", "event_subscription")
	subscriptionInfo = gauge(Shared, "event_subscription_info",
		"Always 1: the type of the destination, to join with other metrics. Up to 10,000; none with pull delivery.",
		"topic", "event_subscription", "destination_type")
	rateLimit = gauge(Shared, "delivery_rate_limit",
		"Rate limit per second that is set (deliveryRate), of requests or events.", "topic", "event_subscription")
	drainTime = gauge(Shared, "backlog_drain_seconds",
		"Time in which the backlog is sent at the rate limit, with those that share it.", "topic", "event_subscription")
	drainsTooLate = gauge(Shared, "backlog_drains_too_late",
		"1 if the time to live of some deliveries ends before their turn at the rate limit.", "topic", "event_subscription")
	problems = gauge(Shared, "problems",
		"Problems of the event subscription that are failing and not acknowledged: outcomes of attempts that fail now.",
		"topic", "event_subscription")
	openDeadLetters = gauge(Shared, "open_dead_letters",
		"Open dead letters, counted up to 10,000; fewer if more than ten event subscriptions have some.",
		"topic", "event_subscription")
	heldDeliveries = gauge(Shared, "held_deliveries",
		"Deliveries on hold by what they wait for now, counted up to 100,000.", "hold")
	heldSubscriptions = gauge(Shared, "held_event_subscriptions",
		"Event subscriptions with deliveries on hold, by their own hold; else rate_limited or admission.", "hold")
	queued    = gauge(Shared, "queued_deliveries", "Deliveries that are due and wait for a worker.")
	available = gauge(Shared, "available_deliveries",
		"Deliveries that consumers may receive now (pull delivery), counted up to 100,000.")
	locked = gauge(Shared, "locked_deliveries",
		"Deliveries that consumers have received and not settled yet (pull delivery), counted up to 100,000.")
	nodes      = gauge(Shared, "nodes", "Nodes that deliver and wrote a heartbeat in the last 15 s.")
	oldestBeat = gauge(Shared, "node_heartbeat_age_seconds",
		"Age of the oldest latest heartbeat of any node. Nodes write one each second.")
	partitionDays = gauge(Shared, "daily_partitions_ahead",
		"Days, today included, for which partitions exist. Normal is 7 or 8.")
	databaseSize      = gauge(Shared, "database_size_bytes", "Size of the database on disk.")
	deadJobs          = gauge(Shared, "dead_job_rows", "Dead rows of the job table, until a vacuum.")
	oldestTransaction = gauge(Shared, "oldest_transaction_age_seconds",
		"Age of the oldest open transaction that postrider's role can see (all with pg_read_all_stats).")
	unexported = gauge(Shared, "unexported_dead_letters",
		"Dead letters not yet exported to their external location, counted up to 100,000.")
	oldestExport = gauge(Shared, "oldest_export_age_seconds",
		"Time since the oldest unfinished dead letter export began. Normal is a few seconds.")
)

var (
	publishFailures = counter(Node, "publish_fail_total",
		"Publish requests that were rejected or failed, by error code (PublishFailCount, which counts events).",
		"topic", "error_type", "error")
	publishDuration = histogram(Node, "publish_success_latency_seconds",
		"Duration of successful publish requests (PublishSuccessLatencyInMs).")
	unmatchedEvents = counter(Node, "unmatched_event_total",
		"Events published over HTTP that matched no event subscription (UnmatchedEventCount).", "topic")
	httpRequests = histogram(Node, "http_request_duration_seconds",
		"Duration of HTTP requests to this node, without the waits of receives.", "method", "route", "code")
	publishGroups   = histogram(Node, "publish_group_events", "Events stored by one publish transaction.")
	publishCommits  = histogram(Node, "publish_group_duration_seconds", "Duration of publish transactions.")
	waitingRequests = gauge(Node, "waiting_publish_requests",
		"Publish requests that wait for memory or their commit. At 20,000 the node rejects further ones.")
	waitingBytes = gauge(Node, "waiting_publish_bytes",
		"Memory reserved for the bodies of publish requests. At 16 MiB (8 MiB for bodies up to 64 KiB) further ones wait.")
	recordGroups  = histogram(Node, "record_flush_results", "Attempts recorded by one transaction.")
	recordCommits = histogram(Node, "record_flush_duration_seconds",
		"Duration of transactions that record attempts, including their retries.")
	recordFailures = counter(Node, "record_failures_total",
		"Transactions that failed to record attempts and were repeated. Until one succeeds, no attempt begins.")
	waitingResults = gauge(Node, "waiting_results", "Attempts that wait to be recorded.")
	promotedJobs   = counter(Node, "promoted_jobs_total",
		"Scheduled jobs that became due and were moved into the queue.")
	reclaimedJobs = counter(Node, "reclaimed_jobs_total",
		"Jobs of dead nodes or lost responses that were queued again.")
	released = counter(Node, "released_deliveries_total", "Deliveries released from a hold.")
	exported = counter(Node, "exported_dead_letters_total",
		"Dead letters written to their external location (exported), or whose export failed for good (abandoned).",
		"state")
	repairs = counter(Node, "consistency_repairs_total",
		"Inconsistent rows of deliveries, batches and jobs that the sweeper repaired. Normal is 0.")
	receivers = gauge(Node, "waiting_receivers",
		"Requests that wait for events (pull delivery). At 20,000 the node rejects further ones.")
	attemptBytes = gauge(Node, "attempt_body_bytes",
		"Size of the bodies of attempts in flight. At 64 MiB further attempts wait.")
	inFlight    = gauge(Node, "attempts_in_flight", "Jobs that workers are running.")
	maxInFlight = gauge(Node, "attempts_in_flight_max", "Limit of running jobs (--max-workers).")
	late        = gauge(Node, "late_requests",
		"Requests that exceeded the ack timeout and still wait for a late response.")
	fetchLag = gauge(Node, "fetch_lag_seconds",
		"How long due jobs wait for a free worker. Near 1 s publishes wait, and the publish rate falls to that of "+
			"deliveries.")
	stalled = gauge(Node, "stalled_seconds",
		"Time for which deliveries have been due without this node starting an attempt. From 60 on the node is not "+
			"ready.")
	databaseUp = gauge(Node, "database_up",
		"1 if this node could read the metrics of the database, else 0. At 0 the metrics that cover all nodes are "+
			"missing.")
	databaseRead = gauge(Node, "database_read_seconds",
		"Duration of the last read of these metrics from the database, including the wait for a connection. Results are "+
			"reused for 5 s.")
	commitsFailing = gauge(Node, "commits_failing",
		"1 from a failed commit of this part of the node until one succeeds, else 0: publish, record or heartbeat.", "part")
	connections = gauge(Node, "pool_connections",
		"Connections to the database that are acquired, idle or opening, without the heartbeat's.", "state")
	maxConnections = gauge(Node, "pool_connections_max", "Limit of connections to the database (--max-conns).")
	acquires       = counter(Node, "pool_acquires_total", "Connections acquired from the pool.")
	emptyAcquires  = counter(Node, "pool_empty_acquires_total",
		"Acquisitions that waited because all connections were in use.")
	emptyAcquireTime = counter(Node, "pool_empty_acquire_wait_seconds_total",
		"Time spent waiting for a free connection.")
	buildInfo = gauge(Node, "build_info", "Always 1.", "version", "revision", "go_version", "role")
)
