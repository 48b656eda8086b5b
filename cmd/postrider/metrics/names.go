package metrics

import "github.com/prometheus/client_golang/prometheus"

// What postrider counts by event subscription has Event Grid's names in Prometheus' spelling: PublishSuccessCount is
// postrider_publish_success_total, a time InMs is in seconds.
//
// Source: Microsoft, Monitoring data reference for Azure Event Grid's push event delivery, 2024-03-20.
const (
	everywhere = " Of all nodes together, and so the same at each of them, since this process began."
	now        = " Of all nodes together, and so the same at each of them."
	here       = " Of this node."
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postrider_"+name, help, labels, nil)
}

// Counted in the database, exactly, by whoever did it.
var (
	publishSuccess  = describe("publish_success_total", "Events stored (PublishSuccessCount)."+everywhere, "topic")
	duplicateEvents = describe("duplicate_event_total",
		"Events that were published again and are stored once."+everywhere, "topic")
	matchedEvents = describe("matched_event_total",
		"Deliveries begun: one for each event subscription that wants an event, and for each redelivery (MatchedEventCount)."+
			everywhere, "topic", "event_subscription")
	deliverySuccess = describe("delivery_success_total",
		"Deliveries that ended with a success (DeliverySuccessCount)."+everywhere, "topic", "event_subscription")
	attemptFailures = describe("delivery_attempt_fail_total",
		"Requests to endpoints that met no success, by outcome (DeliveryAttemptFailCount)."+everywhere, "topic",
		"event_subscription", "error")
	deadLettered = describe("dead_lettered_total",
		"Deliveries that became dead letters (DeadLetteredCount)."+everywhere, "topic", "event_subscription", "reason")
	droppedEvents = describe("dropped_event_total",
		"Deliveries that were given up and left no dead letter (DroppedEventCount)."+everywhere, "topic",
		"event_subscription", "reason")
	canceledEvents = describe("canceled_delivery_total", "Deliveries that were canceled."+everywhere, "topic",
		"event_subscription", "reason")
	endpointDuration = describe("destination_processing_duration_seconds",
		"Requests to endpoints by how long they took (DestinationProcessingDurationInMs). The sum takes each for the "+
			"middle of its bucket."+everywhere, "topic", "event_subscription")
)

// How the whole service stands.
var (
	backlog = describe("backlog_deliveries", "Deliveries that are not finished."+now, "topic",
		"event_subscription")
	oldestPending = describe("oldest_undelivered_age_seconds", "Age of the delivery that is owed for the longest."+now,
		"topic", "event_subscription")
	heldDeliveries  = describe("held_deliveries", "Deliveries on hold, counted up to 100,000."+now, "hold")
	heldSubscribers = describe("held_event_subscriptions",
		"Event subscriptions that have deliveries on hold, by the hold they are on; admission where they are open."+now,
		"hold")
	queuedDeliveries = describe("queued_deliveries", "Deliveries whose turn has come."+now)
	liveNodes        = describe("nodes", "Nodes that deliver and have written a heartbeat in the last 15 s."+now)
	oldestBeat       = describe("node_heartbeat_age_seconds",
		"Age of the last heartbeat of the node that is silent for the longest; there is one a second."+now)
	partitionDays = describe("daily_partitions_ahead",
		"For how many days, this one included, there are partitions already; there should be seven or eight."+now)
	databaseSize = describe("database_size_bytes", "Size of the database on disk."+now)
	deadJobs     = describe("dead_job_rows", "Rows of the table of jobs that wait for a vacuum."+now)
	unexported   = describe("unexported_dead_letters",
		"Dead letters that are still to be written to a location outside, counted up to 100,000."+now)
	oldestExport = describe("oldest_export_age_seconds", "For how long the oldest of the files of dead letters that "+
		"are being written has been tried; seconds, where its location takes it."+now)
	openTransaction = describe("oldest_transaction_age_seconds",
		"Age of the oldest open transaction, of those that this role may see (all with pg_read_all_stats)."+now)
)

// What this node does.
var (
	publishFailures = describe("publish_fail_total",
		"Publish requests that were refused, or failed, by the answer's code (PublishFailCount, but requests and not "+
			"events)."+here, "topic", "error_type", "error")
	publishLatency = describe("publish_success_latency_seconds",
		"Publish requests that were stored, by how long their answer took (PublishSuccessLatencyInMs)."+here)
	unmatchedEvents = describe("unmatched_event_total",
		"Events published over HTTP that no event subscription wants (UnmatchedEventCount)."+here, "topic")
	httpRequests = describe("http_request_duration_seconds", "HTTP requests answered, by how long that took."+here,
		"method", "route", "code")
	publishGroup = describe("publish_group_events", "Transactions that stored events, by how many."+here)
	publishTime  = describe("publish_group_duration_seconds",
		"Transactions that stored events, by how long they took."+here)
	recordFlush = describe("record_flush_results", "Transactions that recorded attempts, by how many."+here)
	recordTime  = describe("record_flush_duration_seconds",
		"Transactions that recorded attempts, by how long it was until they had succeeded."+here)
	recordFailures = describe("record_failures_total",
		"Times that recording failed and was tried again; no request is begun meanwhile."+here)
	promotedJobs  = describe("promoted_jobs_total", "Jobs moved into the queue because their time had come."+here)
	releasedHolds = describe("released_deliveries_total", "Deliveries let go from a hold."+here)
	endedExports  = describe("exported_dead_letters_total",
		"Dead letters that were written to a location outside (exported), or of which that was given up (abandoned)."+here,
		"state")
	reclaimedJobs = describe("reclaimed_jobs_total",
		"Jobs given out again that a node, or a lost answer, had left behind."+here)
	sweeperFinds   = describe("consistency_repairs_total", "What the sweeper had to mend. It should be 0."+here)
	waitingPublish = describe("waiting_publish_requests",
		"Publish requests that wait for their commit; at 20,000 more are refused."+here)
	waitingBytes   = describe("waiting_publish_bytes", "Bodies of those; at 64 MiB more are refused."+here)
	waitingResults = describe("waiting_results", "Attempts that wait to be recorded."+here)
	bodyBytes      = describe("attempt_body_bytes",
		"Bodies of the attempts in flight; at 64 MiB the next one waits."+here)
	inFlight    = describe("attempts_in_flight", "Jobs that are being worked on."+here)
	maxInFlight = describe("attempts_in_flight_max", "How many there may be (--max-workers)."+here)
	openCalls   = describe("late_requests",
		"Requests whose ack timeout is over and whose answer is still waited for."+here)
	stalled = describe("stalled_seconds",
		"For how long deliveries have been due and this node has begun no attempt; from 60 on it is not ready."+here)
	diskFull = describe("database_disk_full", "Whether the database's disk is full, as far as this node has "+
		"seen: 1 from the first failure until there is room."+here)
	databaseUp = describe("database_up", "Whether the database answered when this node asked how the service "+
		"stands; where it is 0, what it would have told is missing."+here)
	databaseRead = describe("database_read_seconds",
		"How long that took, the wait for a connection included; it is asked once in 5 s at most."+here)
	poolConnections = describe("pool_connections",
		"Connections to the database: acquired, idle or being made; the heartbeat's is not among them."+here, "state")
	poolMax      = describe("pool_connections_max", "How many there may be (--max-conns)."+here)
	poolAcquires = describe("pool_acquires_total", "Times a connection was taken from the pool."+here)
	poolWaits    = describe("pool_empty_acquires_total", "Times somebody had to wait for one because all were taken."+here)
	poolWaited   = describe("pool_empty_acquire_wait_seconds_total", "How long they waited."+here)
	buildInfo    = describe("build_info", "Always 1.", "version", "revision", "go_version", "role")
)
