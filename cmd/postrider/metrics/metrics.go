package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"postrider/catalog"
	"postrider/cmd/postrider/app"
	"postrider/cmd/postrider/version"
	"postrider/jobs"
	"postrider/postgres"
	"postrider/query"
	"postrider/server"
)

// collector serves /metrics. It counts nothing itself: the parts of the node and the database do.
type collector struct {
	system   *app.System
	engine   *jobs.Engine
	counters *server.Counters
	role     string
	log      *slog.Logger
	meter    *query.Meter
}

// meterPatience is less than the 10 s that Prometheus waits for a scrape: an outage is to be a metric and not a gap.
const meterPatience = 5 * time.Second

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

// Describe implements prometheus.Collector. It names nothing, because what there is depends on what is subscribed to
// what.
func (m *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	out := series(to)
	m.collectService(out)
	collectStore(out, m.system)
	if m.engine != nil {
		collectEngine(out, m.engine.Stats())
	}
	collectServer(out, m.counters.Read())
	out.gauge(buildInfo, 1, version.Number(), version.Revision(), runtime.Version(), m.role)
}

// series takes metrics of which only the values are known when somebody asks.
type series chan<- prometheus.Metric

func (s series) counter(what *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(what, prometheus.CounterValue, value, labels...)
}

func (s series) gauge(what *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
}

// histogram divides the values by what makes one of the metric's unit.
func (s series) histogram(what *prometheus.Desc, d postgres.Distribution, unit float64, labels ...string) {
	count, below := uint64(0), make(map[float64]uint64, len(d.Bounds))
	for i, n := range d.Counts {
		if count += uint64(n); i < len(d.Bounds) {
			below[float64(d.Bounds[i])/unit] = count
		}
	}
	s <- prometheus.MustNewConstHistogram(what, count, float64(d.Sum)/unit, below, labels...)
}

// collectService is what the database knows.
func (m *collector) collectService(out series) {
	ctx, cancel := context.WithTimeout(context.Background(), meterPatience)
	defer cancel()
	r, err := m.meter.Read(ctx)
	if err != nil {
		m.log.Warn("the database could not be asked for metrics", "error", err)
		out.gauge(databaseUp, 0)
		return
	}
	out.gauge(databaseUp, 1)
	out.gauge(databaseRead, r.Took.Seconds())
	collectTotals(out, r.Totals)
	for _, b := range r.Backlogs {
		out.gauge(backlog, float64(b.Owed), b.Topic, b.Subscription)
		out.gauge(oldestPending, b.OldestSeconds, b.Topic, b.Subscription)
	}
	for hold, n := range held(r.Held) {
		out.gauge(heldDeliveries, float64(n), hold)
	}
	collectVitals(out, &r.Vitals)
	for hold, n := range m.heldSubscriptions() {
		out.gauge(heldSubscribers, float64(n), hold)
	}
	out.gauge(queuedDeliveries, float64(m.system.Traffic.LatestTraffic().QueuedInAll))
}

// holds are all there are: a series that comes and goes is hard to alert on.
func holds() map[string]int64 {
	return map[string]int64{
		catalog.HoldPaused: 0, catalog.HoldNotValidated: 0, catalog.HoldProbation: 0, catalog.HoldAdmission: 0,
	}
}

// held counts deliveries by hold.
func held(counted []query.Counted) map[string]int64 {
	counts := holds()
	for _, c := range counted {
		counts[c.Name] = c.Count
	}
	return counts
}

// heldSubscriptions counts by hold.
func (m *collector) heldSubscriptions() map[string]int64 {
	counts := holds()
	for _, w := range m.system.Traffic.LatestTraffic().Waiting {
		counts[cmp.Or(w.Hold, catalog.HoldAdmission)]++
	}
	return counts
}

func collectVitals(out series, v *query.Vitals) {
	out.gauge(liveNodes, float64(v.Nodes))
	out.gauge(oldestBeat, v.OldestBeatSeconds)
	out.gauge(partitionDays, float64(v.PartitionDays))
	out.gauge(databaseSize, float64(v.DatabaseBytes))
	out.gauge(deadJobs, float64(v.DeadJobs))
	out.gauge(openTransaction, v.OldestTransactionSeconds)
	out.gauge(unexported, float64(v.UnexportedDeadLetters))
	out.gauge(oldestExport, v.OldestExportSeconds)
}
