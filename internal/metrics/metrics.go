// Package metrics serves the metrics of a node to Prometheus.
package metrics

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/internal/version"
	"postrider/jobs"
	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/server"
)

// collector implements prometheus.Collector. It reads counters of the node's parts and of the database.
type collector struct {
	system   *node.System
	engine   *jobs.Engine
	counters *server.Counters
	role     string
	log      *slog.Logger
	meter    *query.Meter
}

// NewHandler serves the metrics of a node in Prometheus' text format, or in OpenMetrics if the client accepts it. The
// engine is nil on a node that makes no attempts; role is a label of the build's metric.
func NewHandler(
	system *node.System, engine *jobs.Engine, counters *server.Counters, role string, log *slog.Logger,
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

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	for _, metric := range all {
		to <- metric.description
	}
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	out := series(to)
	m.collectDatabase(out)
	publishes, records := m.system.Publisher.PublishCounters(), m.system.Recorder.RecorderCounters()
	out.histogram(publishGroups, publishes.Groups, 1)
	out.histogram(publishCommits, publishes.Time, perSecond)
	out.value(waitingRequests, float64(publishes.Waiting))
	out.value(waitingBytes, float64(publishes.WaitingBytes))
	out.histogram(recordGroups, records.Flushes, 1)
	out.histogram(recordCommits, records.Time, perSecond)
	out.value(recordFailures, float64(records.Failures))
	out.value(waitingResults, float64(records.Waiting))
	rows, exports := m.system.JobRows.JobCounters(), m.system.Exports.ExportCounters()
	out.value(promotedJobs, float64(rows.Promoted))
	out.value(reclaimedJobs, float64(rows.Reclaimed))
	out.value(released, float64(m.system.Releaser.ReleasedCount()))
	out.value(exported, float64(exports.Written), "exported")
	out.value(exported, float64(exports.Abandoned), "abandoned")
	out.value(repairs, float64(m.system.Maintenance.Repairs()))
	out.value(receivers, float64(m.system.Receiver.Waiting()))
	out.value(attemptBytes, float64(m.system.Memory.InUse()))
	for part, name := range map[postgres.CommittingPart]string{
		postgres.PublishCommits: "publish", postgres.ResultCommits: "record", postgres.HeartbeatCommits: "heartbeat",
	} {
		out.value(commitsFailing, terminal.Either(m.system.Commits.Fails(part), 1.0, 0), name)
	}
	pool := m.system.DB.Pool.Stat()
	out.value(connections, float64(pool.AcquiredConns()), "acquired")
	out.value(connections, float64(pool.IdleConns()), "idle")
	out.value(connections, float64(pool.ConstructingConns()), "opening")
	out.value(maxConnections, float64(pool.MaxConns()))
	out.value(acquires, float64(pool.AcquireCount()))
	out.value(emptyAcquires, float64(pool.EmptyAcquireCount()))
	out.value(emptyAcquireTime, pool.EmptyAcquireWaitTime().Seconds())
	if m.engine != nil {
		n := m.engine.Stats()
		out.value(inFlight, float64(n.InFlight))
		out.value(maxInFlight, float64(n.MaxWorkers))
		out.value(late, float64(n.OpenCalls))
		out.value(fetchLag, n.FetchLag.Seconds())
		out.value(stalled, n.Stalled.Seconds())
	}
	n := m.counters.Read()
	out.histogram(publishDuration, n.Published, perSecond)
	for key, times := range n.Responses {
		out.histogram(httpRequests, times, perSecond, key.Method, key.Route, strconv.Itoa(key.Status))
	}
	for key, count := range n.PublishFailures {
		out.value(publishFailures, float64(count), key.Topic, terminal.Either(key.Status >= 500, "server", "client"),
			key.Code)
	}
	for topic, count := range n.Unmatched {
		out.value(unmatchedEvents, float64(count), topic)
	}
	out.value(buildInfo, 1, version.Number(), version.Revision(), runtime.Version(), m.role)
}

// series receives metrics with the values that were just read.
type series chan<- prometheus.Metric

func (s series) value(of *Metric, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if of.Type == "counter" {
		kind = prometheus.CounterValue
	}
	s <- prometheus.MustNewConstMetric(of.description, kind, value, labels...)
}

// perSecond converts nanoseconds to seconds.
const perSecond = float64(time.Second)

// histogram divides the distribution's values by unit.
func (s series) histogram(of *Metric, d postgres.Distribution, unit float64, labels ...string) {
	count, below := uint64(0), make(map[float64]uint64, len(d.Bounds))
	for i, n := range d.Counts {
		if count += uint64(n); i < len(d.Bounds) {
			below[float64(d.Bounds[i])/unit] = count
		}
	}
	s <- prometheus.MustNewConstHistogram(of.description, count, float64(d.Sum)/unit, below, labels...)
}

// databaseTimeout is less than the 10 s that Prometheus waits for a scrape: an outage must be a metric, not a gap.
const databaseTimeout = 5 * time.Second

// collectDatabase collects what the nodes have stored in the database.
func (m *collector) collectDatabase(out series) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	r, err := m.meter.Read(ctx)
	if err != nil {
		m.log.Warn("metrics cannot be read from the database", "error", err)
		out.value(databaseUp, 0)
		return
	}
	out.value(databaseUp, 1)
	out.value(databaseRead, r.Took.Seconds())
	collectTotals(out, r.Totals)
	collectTypes(out, m.system.Cache.Snapshot().Subscriptions())
	for _, b := range r.Backlogs {
		out.value(backlog, float64(b.Pending), b.Topic, b.Subscription)
		out.value(oldest, b.OldestSeconds, b.Topic, b.Subscription)
	}
	for _, r := range r.Rates {
		if r.Own != nil {
			out.value(rateLimit, *r.Own, r.Topic, r.Subscription)
		}
		if r.DrainSeconds != nil {
			out.value(drainTime, *r.DrainSeconds, r.Topic, r.Subscription)
		}
		out.value(drainsTooLate, terminal.Either(r.TooLate, 1.0, 0), r.Topic, r.Subscription)
	}
	for _, p := range r.Problems {
		out.value(problems, float64(p.Failing), p.Topic, p.Subscription)
	}
	for _, l := range r.DeadLetters {
		out.value(openDeadLetters, float64(l.Open), l.Topic, l.Subscription)
	}
	deliveries, subscriptions, traffic := holds(), holds(), m.system.Traffic.LatestTraffic()
	for _, held := range r.Held {
		deliveries[held.Name] = held.Count
	}
	for _, w := range traffic.Waiting {
		id := w.SubscriptionID
		if w.Hold == "" && (m.system.Traffic.Limited(id) || m.system.Closed.State(id) != queue.EndpointOpen) {
			w.Hold = catalog.HoldRateLimited
		}
		subscriptions[cmp.Or(w.Hold, catalog.HoldAdmission)]++
	}
	for hold := range deliveries {
		out.value(heldDeliveries, float64(deliveries[hold]), hold)
		out.value(heldSubscriptions, float64(subscriptions[hold]), hold)
	}
	out.value(queued, float64(traffic.QueuedInAll))
	out.value(nodes, float64(r.Vitals.Nodes))
	out.value(oldestBeat, r.Vitals.OldestBeatSeconds)
	out.value(partitionDays, float64(r.Vitals.PartitionDays))
	out.value(databaseSize, float64(r.Vitals.DatabaseBytes))
	out.value(deadJobs, float64(r.Vitals.DeadJobs))
	out.value(oldestTransaction, r.Vitals.OldestTransactionSeconds)
	out.value(available, float64(r.Vitals.AvailableDeliveries))
	out.value(locked, float64(r.Vitals.LockedDeliveries))
	out.value(unexported, float64(r.Vitals.UnexportedDeadLetters))
	out.value(oldestExport, r.Vitals.OldestExportSeconds)
}

// holds has all holds, so that their series always exist: alerts need that.
func holds() map[string]int64 {
	return map[string]int64{
		catalog.HoldPaused: 0, catalog.HoldNotValidated: 0, catalog.HoldProbation: 0, catalog.HoldAdmission: 0,
		catalog.HoldRateLimited: 0,
	}
}

// maxTypes bounds the size of a scrape.
const maxTypes = 10_000

// collectTypes lists the types of destinations, those of the oldest event subscriptions if there are too many.
func collectTypes(out series, subs iter.Seq[*catalog.Subscription]) {
	byAge := slices.SortedFunc(subs, func(a, b *catalog.Subscription) int { return cmp.Compare(a.ID, b.ID) })
	listed := map[[2]string]bool{} // a name may belong to a newer one already: each series must be there once
	for _, s := range byAge {
		if name := [2]string{s.Topic, s.Name}; !s.Pulled() && !listed[name] && len(listed) < maxTypes {
			listed[name] = true
			out.value(subscriptionInfo, 1, s.Topic, s.Name, string(s.Destination.Type()))
		}
	}
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
			out.value(publishSuccess, float64(t.Count), t.Topic)
		case "duplicate":
			out.value(duplicateEvents, float64(t.Count), t.Topic)
		case "matched":
			matched[to] += t.Count
			delivered[to] += 0 // the series must exist from the first event on, so that an alert can see no increase
		case "delivered":
			delivered[to] += t.Count
		case "attempt":
			if !policy.Outcome(t.Detail).Success() {
				out.value(attemptFailures, float64(t.Count), t.Topic, t.Subscription, t.Detail)
			}
			times[to] = times[to].Plus(t.Latency)
		case "dead_lettered", "dropped", "canceled":
			out.value(ends[t.Kind], float64(t.Count), t.Topic, t.Subscription, t.Detail)
		}
	}
	for to, n := range matched {
		out.value(matchedEvents, float64(n), to.topic, to.subscription)
	}
	for to, n := range delivered {
		out.value(deliverySuccess, float64(n), to.topic, to.subscription)
	}
	for to, l := range times {
		out.histogram(endpointDuration, l.Distribution(), perSecond, to.topic, to.subscription)
	}
}
