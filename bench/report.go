package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"postrider/ledger"
)

// Report is the result of a scenario. Its own Figures are those of the last phase.
type Report struct {
	Scenario         string `json:"scenario"`
	Command          string `json:"command"`
	Clients          int    `json:"clients"`
	EventBytes       int    `json:"eventBytes"`
	EventsPerRequest int    `json:"eventsPerRequest"`
	Subscriptions    int    `json:"subscriptions"`

	Figures
	Phases []Figures `json:"phases"`
	// Cost compares the last phase with the first, of failing and backlog.
	Cost *Cost `json:"cost,omitempty"`

	outcome // of the whole run
	// DeadLettered and Ended are deliveries that ended with a dead letter, and otherwise: dropped or canceled.
	DeadLettered int64 `json:"deadLettered"`
	Ended        int64 `json:"ended"`
	// Waiting is the backlog at the end; Unaccounted are its accepted events without a delivery.
	Waiting     int64 `json:"waiting,omitempty"`
	Unaccounted int64 `json:"unaccounted,omitempty"`

	// Checkpoints is the number of forced checkpoints, one in each phase; 0 if the user may not force one.
	Checkpoints int      `json:"checkpoints"`
	Settings    Settings `json:"settings"`
	Machine     Machine  `json:"machine"`
}

// outcome counts the events of a run by their result.
type outcome struct {
	Published  int64  `json:"published"` // events with response 200
	Rejected   int64  `json:"rejected"`  // with another response
	Failed     int64  `json:"failed"`    // without a response
	FirstError string `json:"firstError,omitempty"`

	Delivered int64 `json:"delivered"` // deliveries in state delivered
	Left      int64 `json:"left"`      // deliveries in state pending
	// The following are from the ledgers of publishers and endpoint, not from the database: see Verdict.
	Received       int64    `json:"received"`
	Lost           int      `json:"lost"`
	Duplicates     int      `json:"duplicates"`
	Changed        int      `json:"changed"`
	Unacknowledged int      `json:"unacknowledged"`
	LostIDs        []string `json:"lostIds,omitempty"` // up to ten
}

func (o *outcome) addLoad(l loadReport) {
	o.Published, o.Rejected, o.Failed = o.Published+l.published, o.Rejected+l.rejected, o.Failed+l.failed
	if l.firstError != nil && o.FirstError == "" {
		o.FirstError = l.firstError.Error()
	}
}

func (o *outcome) addVerdict(v ledger.Verdict) {
	o.Received, o.Lost, o.Duplicates = int64(v.Received), len(v.Lost), v.Duplicates
	o.Changed, o.Unacknowledged, o.LostIDs = len(v.Changed), len(v.Unacknowledged), v.Lost[:min(len(v.Lost), 10)]
}

// err returns nil if every accepted event was delivered unchanged. otherwise is the number of deliveries that ended in
// another state, unaccounted that of accepted events without a delivery.
func (o *outcome) err(otherwise, unaccounted int64) error {
	var wrong []string
	for _, w := range []struct {
		n    int64
		what string
	}{
		{int64(o.Lost), "lost"},
		{int64(o.Changed), "changed"},
		{o.Left, "not delivered"},
		{otherwise, "dead-lettered, dropped or canceled"},
		{unaccounted, "without a delivery"},
	} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	if wrong != nil {
		return fmt.Errorf("of %d events published: %s", o.Published, strings.Join(wrong, ", "))
	}
	return nil
}

func (o *outcome) print(p *printer, otherwise int64) {
	p.line("left, lost", "%d, %d of %d (duplicates %d, changed %d, dead-lettered, dropped or canceled %d)", o.Left, o.Lost,
		o.Published, o.Duplicates, o.Changed, otherwise)
	if o.Rejected+o.Failed > 0 {
		p.line("not accepted", "%d rejected, %d without a response; first: %s", o.Rejected, o.Failed, o.FirstError)
	}
}

// Figures are of one phase.
type Figures struct {
	Phase string `json:"phase"`
	// AcceptedPerSecond are events with response 200, in PublishSeconds: from the first publish to the last response.
	AcceptedPerSecond float64 `json:"acceptedPerSecond"`
	PublishSeconds    float64 `json:"publishSeconds"`
	// DeliveredPerSecond are deliveries, in DeliverSeconds: from the first publish to the last recorded delivery. In
	// failing they are the arrivals in PublishSeconds, because the last retries are much later.
	DeliveredPerSecond float64 `json:"deliveredPerSecond"`
	DeliverSeconds     float64 `json:"deliverSeconds"`
	// EventsPerAttempt is the average number of events in an acknowledged request.
	EventsPerAttempt float64 `json:"eventsPerAttempt"`
	// LatencyMs is from an event's publish to its arrival; in an open loop from the time at which it was due. If delivery
	// is paused it is PublishLatencyMs. Events published before the phase are not included.
	LatencyMs Latencies `json:"latencyMs,omitzero"`
	// PublishLatencyMs is from the same moment to the response.
	PublishLatencyMs Latencies `json:"publishLatencyMs,omitzero"`
	// PublishStallMs is the longest time without a response 200, DeliveryStallMs without an arrival while events were
	// published.
	PublishStallMs  float64 `json:"publishStallMs,omitempty"`
	DeliveryStallMs float64 `json:"deliveryStallMs,omitempty"`

	// CPUSeconds are by process: postgres (with its sessions), service, sink and load, then "others" (all other processes)
	// and "idle". Values that the system does not report are absent.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
	// CPUSecondsPer10k are those of service and postgres for 10,000 deliveries. This and the next two are divided by the
	// deliveries that ended in the phase; if delivery is paused, by those that were created.
	CPUSecondsPer10k map[string]float64 `json:"cpuSecondsPer10k"`
	// TableBytesPerDelivery is the growth of postrider's tables and indexes, WALBytesPerDelivery that of the write-ahead
	// log.
	TableBytesPerDelivery float64 `json:"tableBytesPerDelivery"`
	WALBytesPerDelivery   float64 `json:"walBytesPerDelivery"`
	// RSSPeakMB is the peak resident memory of the service during the phase, in MiB.
	RSSPeakMB float64 `json:"rssPeakMB"`
}

// Cost are figures divided by those of another phase.
type Cost struct {
	Accepted    float64 `json:"accepted"`
	Delivered   float64 `json:"delivered"`
	LatencyP99  float64 `json:"latencyP99"`
	ServiceCPU  float64 `json:"serviceCpu"`  // per delivery, as the next
	PostgresCPU float64 `json:"postgresCpu"` // 0 if it is not known
}

func newReport(o Options) Report {
	return Report{
		Scenario: o.Scenario, Command: o.Command, Machine: thisMachine(), Clients: o.Clients, EventBytes: o.EventBytes,
		EventsPerRequest: o.EventsPerRequest, Subscriptions: o.Subscriptions,
	}
}

func (f *Figures) addPublish(l loadReport) {
	f.PublishSeconds, f.AcceptedPerSecond = perSecond(l.published, l.to.Sub(l.from))
	f.PublishLatencyMs, f.PublishStallMs = l.latency, millis(l.stall)
}

// addDeliveries counts from began to the last delivery that was recorded.
func (f *Figures) addDeliveries(before, after snapshot, began time.Time) {
	last := time.Unix(0, after.sink.LastAt)
	if recorded := after.deliveries.lastEndedAt; recorded != nil && recorded.After(last) {
		last = *recorded
	}
	f.DeliverSeconds, f.DeliveredPerSecond = perSecond(after.deliveries.delivered-before.deliveries.delivered,
		last.Sub(began))
	if requests := after.sink.Requests - before.sink.Requests; requests > 0 {
		f.EventsPerAttempt = round(float64(after.sink.Received-before.sink.Received)/float64(requests), 1)
	}
}

// addCost divides the growth and the CPU time of a phase by a number of deliveries.
func (f *Figures) addCost(before, after snapshot, n int64) {
	if n <= 0 {
		return
	}
	f.TableBytesPerDelivery = round(float64(after.written.tables-before.written.tables)/float64(n), 0)
	f.WALBytesPerDelivery = round(float64(after.written.wal-before.written.wal)/float64(n), 0)
	f.CPUSecondsPer10k = map[string]float64{}
	for _, name := range []string{"service", "postgres"} {
		if seconds, known := f.CPUSeconds[name]; known {
			f.CPUSecondsPer10k[name] = round(seconds/float64(n)*10_000, 3)
		}
	}
}

func (p *phase) addArrivals(arrivals []arrival) {
	var took []time.Duration
	var within, last, stall int64
	for _, a := range arrivals {
		if !a.Acknowledged {
			continue
		}
		if p.sent.holds(a.At) {
			within++
			if last > 0 {
				stall = max(stall, a.At-last)
			}
			last = max(last, a.At)
		}
		if p.sent.holds(a.SentAt) {
			took = append(took, time.Duration(a.At-a.SentAt))
		}
	}
	if p.duringPublish {
		p.figures.DeliverSeconds, p.figures.DeliveredPerSecond = perSecond(within, p.sent.length())
	}
	p.figures.LatencyMs, p.figures.DeliveryStallMs = latencies(took), millis(time.Duration(stall))
	if p.paused {
		p.figures.LatencyMs = p.figures.PublishLatencyMs
	}
}

func (r *Report) addPhases(phases []phase, arrivals []arrival) {
	for _, p := range phases {
		p.addArrivals(arrivals)
		r.Phases = append(r.Phases, p.figures)
	}
	first, last := r.Phases[0], r.Phases[len(phases)-1]
	r.Figures = last
	if r.Scenario == "failing" || r.Scenario == "backlog" {
		r.Cost = &Cost{
			Accepted:    ratio(last.AcceptedPerSecond, first.AcceptedPerSecond),
			Delivered:   ratio(last.DeliveredPerSecond, first.DeliveredPerSecond),
			LatencyP99:  ratio(last.LatencyMs.P99, first.LatencyMs.P99),
			ServiceCPU:  ratio(last.CPUSecondsPer10k["service"], first.CPUSecondsPer10k["service"]),
			PostgresCPU: ratio(last.CPUSecondsPer10k["postgres"], first.CPUSecondsPer10k["postgres"]),
		}
	}
}

// Err returns nil if every accepted event was delivered unchanged and recorded.
func (r Report) Err() error { return r.err(r.DeadLettered+r.Ended, r.Unaccounted) }

// printer prints lines of a name and a value.
type printer struct{ strings.Builder }

func (p *printer) line(name, format string, args ...any) {
	text := fmt.Sprintf("%-18s "+format, append([]any{name}, args...)...)
	p.WriteString(strings.TrimRight(text, " ") + "\n")
}

// String formats the report for people.
func (r Report) String() string {
	var p printer
	for _, f := range r.Phases {
		if len(r.Phases) > 1 {
			fmt.Fprintf(&p, "%s:\n", f.Phase)
		}
		f.print(&p)
	}
	if c := r.Cost; c != nil {
		p.line("cost", "accepted x %.2f, delivered x %.2f, p99 x %.2f, CPU per delivery: service x %.2f, postgres x %.2f",
			c.Accepted, c.Delivered, c.LatencyP99, c.ServiceCPU, c.PostgresCPU)
	}
	if r.Waiting > 0 {
		p.line("backlog", "%d deliveries waited until the end", r.Waiting)
	}
	r.outcome.print(&p, r.DeadLettered+r.Ended)
	p.line("PostgreSQL", "%s", r.Settings)
	p.line("machine", "%s", r.Machine)
	p.line("command", "%s", r.Command)
	return strings.TrimSuffix(p.String(), "\n")
}

func (f Figures) print(p *printer) {
	if f.AcceptedPerSecond > 0 {
		p.line("accepted", "%.0f events/s for %.1f s", f.AcceptedPerSecond, f.PublishSeconds)
	}
	if f.DeliveredPerSecond > 0 {
		p.line("delivered", "%.0f/s in %.1f s, %.1f events in a request", f.DeliveredPerSecond, f.DeliverSeconds,
			f.EventsPerAttempt)
	}
	if f.PublishLatencyMs != (Latencies{}) {
		p.line("publish latency", "%s", f.PublishLatencyMs)
	}
	if f.LatencyMs != (Latencies{}) && f.LatencyMs != f.PublishLatencyMs {
		p.line("delivery latency", "%s", f.LatencyMs)
	}
	if f.PublishStallMs > 0 {
		p.line("longest stall", "%.0f ms without a response to a publish, %.0f ms without an arrival", f.PublishStallMs,
			f.DeliveryStallMs)
	}
	p.line("each delivery", "%.0f bytes of tables, %.0f of WAL; 10,000: CPU seconds %s", f.TableBytesPerDelivery,
		f.WALBytesPerDelivery, cpuText(f.CPUSecondsPer10k))
	p.line("CPU seconds", "%s", cpuText(f.CPUSeconds))
	p.line("memory", "%.0f MB of the service at its peak", f.RSSPeakMB)
}

func cpuText(seconds map[string]float64) string {
	parts := make([]string, 0, len(seconds))
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		parts = append(parts, fmt.Sprintf("%s %.1f", name, seconds[name]))
	}
	return strings.Join(parts, ", ")
}

// Latencies are percentiles in milliseconds. The names of members with latencies end with Ms.
type Latencies struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// String formats the latencies for people.
func (l Latencies) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p95 %.1f  p99 %.1f  max %.1f ms", l.P50, l.P90, l.P95, l.P99, l.Max)
}

func latencies(took []time.Duration) Latencies {
	at := func(p float64) float64 { return millis(percentile(took, p)) }
	return Latencies{P50: at(50), P90: at(90), P95: at(95), P99: at(99), Max: at(100)}
}

// percentile sorts the durations and returns the one that p percent of them do not exceed; 0 if there are none.
func percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	rank := int(math.Ceil(p / 100 * float64(len(took))))
	return took[max(rank, 1)-1]
}

func millis(d time.Duration) float64 { return round(d.Seconds()*1000, 3) }

// perSecond returns the time in seconds and the number per second; both are 0 if n is 0.
func perSecond(n int64, d time.Duration) (seconds, rate float64) {
	if n == 0 || d <= 0 {
		return 0, 0
	}
	return round(d.Seconds(), 3), round(float64(n)/d.Seconds(), 1)
}

// ratio divides two values; 0 if the divisor is 0.
func ratio(value, to float64) float64 {
	if to == 0 {
		return 0
	}
	return round(value/to, 3)
}

func round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}
