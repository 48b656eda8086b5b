// Package metrics serves the metrics of a node to Prometheus.
package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"postrider/catalog"
	"postrider/cmd/postrider/app"
	"postrider/cmd/postrider/terminal"
	"postrider/cmd/postrider/version"
	"postrider/jobs"
	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/server"
)

// Metrics of event subscriptions have Event Grid's names in Prometheus' spelling: PublishSuccessCount is
// postrider_publish_success_total, a time InMs is in seconds.
//
// Source: Microsoft, Monitoring data reference for Azure Event Grid's push event delivery, 2024-03-20.
const (
	total  = " Counts all nodes since this process started; every node reports the same value."
	shared = " Covers all nodes; every node reports the same value."
	here   = " Of this node."
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postrider_"+name, help, labels, nil)
}

// Descriptions of metrics that can have a series for each topic, event subscription or route.
var (
	publishSuccess  = describe("publish_success_total", "Events stored (PublishSuccessCount)."+total, "topic")
	duplicateEvents = describe("duplicate_event_total",
		"Events published again and recognized as duplicates."+total, "topic")
	matchedEvents = describe("matched_event_total",
		"Deliveries created: one for each matched event subscription and each redelivery (MatchedEventCount)."+total,
		"topic", "event_subscription")
	deliverySuccess = describe("delivery_success_total", "Deliveries that succeeded (DeliverySuccessCount)."+total,
		"topic", "event_subscription")
	attemptFailures = describe("delivery_attempt_fail_total",
		"Delivery attempts that failed, by outcome (DeliveryAttemptFailCount)."+total, "topic", "event_subscription", "error")
	endpointDuration = describe("destination_processing_duration_seconds",
		"Duration of requests to endpoints (DestinationProcessingDurationInMs). The sum is an estimate: it takes the "+
			"middle of each bucket."+total, "topic", "event_subscription")
	backlog = describe("backlog_deliveries", "Pending deliveries."+shared, "topic", "event_subscription")
	oldest  = describe("oldest_undelivered_age_seconds", "Age of the oldest pending delivery."+shared,
		"topic", "event_subscription")
	publishFailures = describe("publish_fail_total",
		"Publish requests that were rejected or failed, by error code (PublishFailCount, which counts events)."+here,
		"topic", "error_type", "error")
	unmatchedEvents = describe("unmatched_event_total",
		"Events published over HTTP that matched no event subscription (UnmatchedEventCount)."+here, "topic")
	httpRequests = describe("http_request_duration_seconds", "Duration of HTTP requests to this node."+here,
		"method", "route", "code")

	// ends are the metrics of deliveries that ended without a success, by kind.
	ends = map[string]*prometheus.Desc{
		"dead_lettered": describe("dead_lettered_total",
			"Deliveries that became dead letters (DeadLetteredCount)."+total, "topic", "event_subscription", "reason"),
		"dropped": describe("dropped_event_total",
			"Deliveries that failed for good and left no dead letter (DroppedEventCount)."+total,
			"topic", "event_subscription", "reason"),
		"canceled": describe("canceled_delivery_total", "Deliveries that were canceled."+total,
			"topic", "event_subscription", "reason"),
	}
)

// collector implements prometheus.Collector. It reads counters of the node's parts and of the database.
type collector struct {
	system   *app.System
	engine   *jobs.Engine
	counters *server.Counters
	role     string
	log      *slog.Logger
	meter    *query.Meter
}

// NewHandler serves the metrics of a node in Prometheus' text format, or in OpenMetrics if the client accepts it. The
// engine is nil on a node that makes no attempts; role is a label of the build's metric.
func NewHandler(
	system *app.System, engine *jobs.Engine, counters *server.Counters, role string, log *slog.Logger,
) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		&collector{system, engine, counters, role, log, query.NewMeter(system.DB)}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)})
}

// NewRuntimeHandler serves all metrics of Go's runtime, and those of the process.
func NewRuntimeHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector. It sends nothing, because the series depend on topics and subscriptions.
func (m *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	out := series(to)
	m.collectDatabase(out)
	collectPublishes(out, m.system)
	collectParts(out, m.system)
	if m.engine != nil {
		collectEngine(out, m.engine.Stats())
	}
	collectServer(out, m.counters.Read())
	out.gauge(describe("build_info", "Always 1.", "version", "revision", "go_version", "role"), 1,
		version.Number(), version.Revision(), runtime.Version(), m.role)
}

// series receives metrics with the values that were just read.
type series chan<- prometheus.Metric

func (s series) counter(what *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(what, prometheus.CounterValue, value, labels...)
}

func (s series) gauge(what *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
}

// perSecond converts nanoseconds to seconds.
const perSecond = float64(time.Second)

// histogram divides the distribution's values by unit.
func (s series) histogram(what *prometheus.Desc, d postgres.Distribution, unit float64, labels ...string) {
	count, below := uint64(0), make(map[float64]uint64, len(d.Bounds))
	for i, n := range d.Counts {
		if count += uint64(n); i < len(d.Bounds) {
			below[float64(d.Bounds[i])/unit] = count
		}
	}
	s <- prometheus.MustNewConstHistogram(what, count, float64(d.Sum)/unit, below, labels...)
}

// databaseTimeout is less than the 10 s that Prometheus waits for a scrape: an outage must be a metric, not a gap.
const databaseTimeout = 5 * time.Second

// collectDatabase collects what the nodes have stored in the database.
func (m *collector) collectDatabase(out series) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	up := describe("database_up", "1 if this node could read the metrics of the database, else 0. At 0 the metrics "+
		"that cover all nodes are missing."+here)
	r, err := m.meter.Read(ctx)
	if err != nil {
		m.log.Warn("metrics cannot be read from the database", "error", err)
		out.gauge(up, 0)
		return
	}
	out.gauge(up, 1)
	out.gauge(describe("database_read_seconds", "Duration of the last read of these metrics from the database, "+
		"including the wait for a connection. Results are reused for 5 s."+here), r.Took.Seconds())
	collectTotals(out, r.Totals)
	for _, b := range r.Backlogs {
		out.gauge(backlog, float64(b.Pending), b.Topic, b.Subscription)
		out.gauge(oldest, b.OldestSeconds, b.Topic, b.Subscription)
	}
	deliveries, subscriptions, traffic := holds(), holds(), m.system.Traffic.LatestTraffic()
	for _, held := range r.Held {
		deliveries[held.Name] = held.Count
	}
	for _, w := range traffic.Waiting {
		subscriptions[cmp.Or(w.Hold, catalog.HoldAdmission)]++
	}
	onHold := describe("held_deliveries", "Deliveries on hold, counted up to 100,000."+shared, "hold")
	withHeld := describe("held_event_subscriptions", "Event subscriptions with deliveries on hold, by their own hold; "+
		"admission if they have none."+shared, "hold")
	for hold := range deliveries {
		out.gauge(onHold, float64(deliveries[hold]), hold)
		out.gauge(withHeld, float64(subscriptions[hold]), hold)
	}
	out.gauge(describe("queued_deliveries", "Deliveries that are due and wait for a worker."+shared),
		float64(traffic.QueuedInAll))
	collectVitals(out, &r.Vitals)
}

// holds has all holds, so that their series always exist: alerts need that.
func holds() map[string]int64 {
	return map[string]int64{
		catalog.HoldPaused: 0, catalog.HoldNotValidated: 0, catalog.HoldProbation: 0, catalog.HoldAdmission: 0,
	}
}

func collectVitals(out series, v *query.Vitals) {
	out.gauge(describe("nodes", "Nodes that deliver and wrote a heartbeat in the last 15 s."+shared), float64(v.Nodes))
	out.gauge(describe("node_heartbeat_age_seconds",
		"Age of the oldest latest heartbeat of any node. Nodes write one each second."+shared), v.OldestBeatSeconds)
	out.gauge(describe("daily_partitions_ahead",
		"Days, today included, for which partitions exist. Normal is 7 or 8."+shared), float64(v.PartitionDays))
	out.gauge(describe("database_size_bytes", "Size of the database on disk."+shared), float64(v.DatabaseBytes))
	out.gauge(describe("dead_job_rows", "Dead rows of the job table, until a vacuum."+shared), float64(v.DeadJobs))
	out.gauge(describe("oldest_transaction_age_seconds",
		"Age of the oldest open transaction that postrider's role can see (all with pg_read_all_stats)."+shared),
		v.OldestTransactionSeconds)
	out.gauge(describe("unexported_dead_letters",
		"Dead letters not yet exported to their external location, counted up to 100,000."+shared),
		float64(v.UnexportedDeadLetters))
	out.gauge(describe("oldest_export_age_seconds",
		"Time since the oldest unfinished dead letter export began. Normal is a few seconds."+shared), v.OldestExportSeconds)
}

// collectTotals adds up the rows that form one series, such as the attempts with different outcomes.
func collectTotals(out series, totals []query.Total) {
	type names struct{ topic, subscription string }
	matched, delivered, times := map[names]int64{}, map[names]int64{}, map[names]*query.Latency{}
	for i := range totals {
		t := &totals[i]
		to := names{t.Topic, t.Subscription}
		switch t.Kind {
		case "published":
			out.counter(publishSuccess, float64(t.Count), t.Topic)
		case "duplicate":
			out.counter(duplicateEvents, float64(t.Count), t.Topic)
		case "matched":
			matched[to] += t.Count
			delivered[to] += 0 // the series must exist from the first event on, so that an alert can see no increase
		case "delivered":
			delivered[to] += t.Count
		case "attempt":
			if t.Detail != string(policy.OutcomeDelivered) {
				out.counter(attemptFailures, float64(t.Count), t.Topic, t.Subscription, t.Detail)
			}
			times[to] = times[to].Plus(t.Latency)
		case "dead_lettered", "dropped", "canceled":
			out.counter(ends[t.Kind], float64(t.Count), t.Topic, t.Subscription, t.Detail)
		}
	}
	for to, n := range matched {
		out.counter(matchedEvents, float64(n), to.topic, to.subscription)
	}
	for to, n := range delivered {
		out.counter(deliverySuccess, float64(n), to.topic, to.subscription)
	}
	for to, l := range times {
		out.histogram(endpointDuration, l.Distribution(), perSecond, to.topic, to.subscription)
	}
}

func collectPublishes(out series, s *app.System) {
	publishes, records := s.Publisher.PublishCounters(), s.Recorder.RecorderCounters()
	out.histogram(describe("publish_group_events", "Events stored by one publish transaction."+here), publishes.Groups, 1)
	out.histogram(describe("publish_group_duration_seconds", "Duration of publish transactions."+here), publishes.Time,
		perSecond)
	out.gauge(describe("waiting_publish_requests",
		"Publish requests that wait for their commit. At 20,000 the node rejects further ones."+here),
		float64(publishes.Waiting))
	out.gauge(describe("waiting_publish_bytes",
		"Size of the bodies of waiting publish requests. At 64 MiB the node rejects further ones."+here),
		float64(publishes.WaitingBytes))
	out.histogram(describe("record_flush_results", "Attempts recorded by one transaction."+here), records.Flushes, 1)
	out.histogram(describe("record_flush_duration_seconds",
		"Duration of transactions that record attempts, including their retries."+here), records.Time, perSecond)
	out.counter(describe("record_failures_total",
		"Transactions that failed to record attempts and were repeated. Until one succeeds, no attempt begins."+here),
		float64(records.Failures))
	out.gauge(describe("waiting_results", "Attempts that wait to be recorded."+here), float64(records.Waiting))
}

func collectParts(out series, s *app.System) {
	jobs, exports := s.JobRows.JobCounters(), s.Exports.ExportCounters()
	out.counter(describe("promoted_jobs_total", "Scheduled jobs that became due and were moved into the queue."+here),
		float64(jobs.Promoted))
	out.counter(describe("reclaimed_jobs_total", "Jobs of dead nodes or lost responses that were queued again."+here),
		float64(jobs.Reclaimed))
	out.counter(describe("released_deliveries_total", "Deliveries released from a hold."+here),
		float64(s.Releaser.ReleasedCount()))
	exported := describe("exported_dead_letters_total",
		"Dead letters written to their external location (exported), or whose export failed for good (abandoned)."+here,
		"state")
	out.counter(exported, float64(exports.Written), "exported")
	out.counter(exported, float64(exports.Abandoned), "abandoned")
	out.counter(describe("consistency_repairs_total",
		"Inconsistent rows of deliveries, batches and jobs that the sweeper repaired. Normal is 0."+here),
		float64(s.Maintenance.Repairs()))
	out.gauge(describe("attempt_body_bytes",
		"Size of the bodies of attempts in flight. At 64 MiB further attempts wait."+here), float64(s.Memory.InUse()))
	out.gauge(describe("database_disk_full",
		"1 from the first write that fails because PostgreSQL's disk is full until a write succeeds, else 0."+here),
		terminal.Either(s.Disk.DiskFull(), 1.0, 0))
	pool := s.DB.Pool.Stat()
	connections := describe("pool_connections",
		"Connections to the database that are acquired, idle or opening, without the heartbeat's."+here, "state")
	out.gauge(connections, float64(pool.AcquiredConns()), "acquired")
	out.gauge(connections, float64(pool.IdleConns()), "idle")
	out.gauge(connections, float64(pool.ConstructingConns()), "opening")
	out.gauge(describe("pool_connections_max", "Limit of connections to the database (--max-conns)."+here),
		float64(pool.MaxConns()))
	out.counter(describe("pool_acquires_total", "Connections acquired from the pool."+here), float64(pool.AcquireCount()))
	out.counter(describe("pool_empty_acquires_total",
		"Acquisitions that waited because all connections were in use."+here), float64(pool.EmptyAcquireCount()))
	out.counter(describe("pool_empty_acquire_wait_seconds_total", "Time spent waiting for a free connection."+here),
		pool.EmptyAcquireWaitTime().Seconds())
}

func collectEngine(out series, n jobs.Stats) {
	out.gauge(describe("attempts_in_flight", "Jobs that workers are running."+here), float64(n.InFlight))
	out.gauge(describe("attempts_in_flight_max", "Limit of running jobs (--max-workers)."+here), float64(n.MaxWorkers))
	out.gauge(describe("late_requests",
		"Requests that exceeded the ack timeout and still wait for a late response."+here), float64(n.OpenCalls))
	out.gauge(describe("stalled_seconds",
		"Time for which deliveries have been due without this node starting an attempt. From 60 on the node is not ready."+
			here), n.Stalled.Seconds())
}

func collectServer(out series, n server.Stats) {
	out.histogram(describe("publish_success_latency_seconds",
		"Duration of successful publish requests (PublishSuccessLatencyInMs)."+here), n.Published, perSecond)
	for key, times := range n.Responses {
		out.histogram(httpRequests, times, perSecond, key.Method, key.Route, strconv.Itoa(key.Status))
	}
	for key, count := range n.PublishFailures {
		out.counter(publishFailures, float64(count), key.Topic, terminal.Either(key.Status >= 500, "server", "client"),
			key.Code)
	}
	for topic, count := range n.Unmatched {
		out.counter(unmatchedEvents, float64(count), topic)
	}
}
