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

// Collector answers /metrics. It counts nothing itself: the parts of the node and the database do.
type Collector struct {
	// System are the parts of the node; Engine is nil on a node that delivers nothing.
	System *app.System
	Engine *jobs.Engine
	Server *server.Server
	// Role is a label of the build's metric.
	Role string
	Log  *slog.Logger

	meter *query.Meter
}

// meterPatience is less than the 10 s that Prometheus waits for a scrape: an outage is to be a metric and not a gap.
const meterPatience = 5 * time.Second

// Handler serves metrics in Prometheus' text format, or in OpenMetrics if the client accepts it.
func (m *Collector) Handler() http.Handler {
	m.meter = query.NewMeter(m.System.DB)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(m.Log.Handler(), slog.LevelWarn)})
}

// Describe implements prometheus.Collector. It names nothing, because what there is depends on what is subscribed to
// what.
func (m *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Collector) Collect(to chan<- prometheus.Metric) {
	out := series(to)
	m.collectService(out)
	collectStore(out, m.System)
	if m.Engine != nil {
		collectEngine(out, m.Engine.Stats())
	}
	collectServer(out, m.Server.Stats())
	out.gauge(buildInfo, 1, version.Number(), version.Revision(), runtime.Version(), m.Role)
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
func (m *Collector) collectService(out series) {
	ctx, cancel := context.WithTimeout(context.Background(), meterPatience)
	defer cancel()
	r, err := m.meter.Read(ctx)
	if err != nil {
		m.Log.Warn("the database could not be asked for metrics", "error", err)
		out.gauge(databaseUp, 0)
		return
	}
	out.gauge(databaseUp, 1)
	out.gauge(databaseRead, r.Took.Seconds())
	collectTotals(out, r.Totals)
	for _, b := range r.Backlogs {
		out.gauge(backlog, float64(b.Owed), b.Topic, b.Subscription)
		out.gauge(oldestOwed, b.OldestSeconds, b.Topic, b.Subscription)
	}
	for hold, n := range held(r.Held) {
		out.gauge(heldDeliveries, float64(n), hold)
	}
	collectVitals(out, &r.Vitals)
	for hold, n := range m.heldSubscriptions() {
		out.gauge(heldSubscribers, float64(n), hold)
	}
	out.gauge(queuedDeliveries, float64(m.System.Traffic.LatestTraffic().QueuedInAll))
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
func (m *Collector) heldSubscriptions() map[string]int64 {
	counts := holds()
	for _, w := range m.System.Traffic.LatestTraffic().Waiting {
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
	out.gauge(unexported, float64(v.UnexportedLetters))
	out.gauge(oldestExport, v.OldestExportSeconds)
}
