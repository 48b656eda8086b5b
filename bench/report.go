package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"postrider/internal/ledger"
	"postrider/internal/terminal"
)

// common is in all reports.
type common struct {
	Command string `json:"command"`
	// Settings decide whether a commit survives a crash of the machine.
	Settings map[string]string `json:"settings"`
	Machine  map[string]any    `json:"machine"`
}

// report is the result of a scenario of run. Its own figures are those of the last phase.
type report struct {
	Scenario         string `json:"scenario"`
	Clients          int    `json:"clients"`
	EventBytes       int    `json:"eventBytes"`
	EventsPerRequest int    `json:"eventsPerRequest"`
	Subscriptions    int    `json:"subscriptions"`
	Nodes            int    `json:"nodes"`
	figures
	Phases []figures `json:"phases"`
	// Cost has figures of the last phase divided by those of the first, of failing and backlog. CPU is per delivery.
	Cost map[string]float64 `json:"cost,omitempty"`

	outcome // of the whole run
	// DeadLettered and Ended are deliveries that ended with a dead letter, and otherwise: dropped or canceled.
	DeadLettered int64 `json:"deadLettered"`
	Ended        int64 `json:"ended"`
	// Waiting is the backlog at the end; Unaccounted are its accepted events without a delivery.
	Waiting     int64 `json:"waiting,omitempty"`
	Unaccounted int64 `json:"unaccounted,omitempty"`
	// Checkpoints is the number of forced checkpoints, one in each phase; 0 if the user may not force one.
	Checkpoints int `json:"checkpoints"`
	common
}

// outcome counts the events of a run by their result.
type outcome struct {
	Published  int64  `json:"published"` // events with response 200
	Rejected   int64  `json:"rejected"`  // with another response
	Failed     int64  `json:"failed"`    // without a response
	FirstError string `json:"firstError,omitempty"`
	Delivered  int64  `json:"delivered"` // deliveries in state delivered
	Left       int64  `json:"left"`      // deliveries in state pending
	// The following are from the ledgers of publishers and endpoint, not from the database: see ledger.Verdict.
	Received       int64    `json:"received"`
	Lost           int      `json:"lost"`
	Duplicates     int      `json:"duplicates"`
	Changed        int      `json:"changed"`
	Unacknowledged int      `json:"unacknowledged"`
	LostIDs        []string `json:"lostIds,omitempty"` // up to ten
}

func (o *outcome) addLoad(l *load) {
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
	what := []string{"lost", "changed", "not delivered", "dead-lettered, dropped or canceled", "without a delivery"}
	for i, n := range []int64{int64(o.Lost), int64(o.Changed), o.Left, otherwise, unaccounted} {
		if n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", n, what[i]))
		}
	}
	if wrong != nil {
		return fmt.Errorf("of %d events published: %s", o.Published, strings.Join(wrong, ", "))
	}
	return nil
}

// figures are of one phase. docs/internals/performance.md explains them.
type figures struct {
	Phase              string  `json:"phase"`
	AcceptedPerSecond  float64 `json:"acceptedPerSecond"`
	PublishSeconds     float64 `json:"publishSeconds"`
	DeliveredPerSecond float64 `json:"deliveredPerSecond"`
	DeliverSeconds     float64 `json:"deliverSeconds"`
	// EventsPerAttempt is the average number of events in an acknowledged request.
	EventsPerAttempt float64 `json:"eventsPerAttempt"`
	// LatencyMs is PublishLatencyMs if delivery is paused. Events published before the phase are not included.
	LatencyMs        map[string]float64 `json:"latencyMs,omitempty"`
	PublishLatencyMs map[string]float64 `json:"publishLatencyMs,omitempty"`
	PublishStallMs   float64            `json:"publishStallMs,omitempty"`
	DeliveryStallMs  float64            `json:"deliveryStallMs,omitempty"`
	// CPUSeconds are by process: postgres (with its sessions), service (all nodes) and load (with the endpoint), then
	// "others" (all other processes) and "idle". Values that the system does not report are absent.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
	// This and the next two are divided by the deliveries that ended in the phase; if delivery is paused, by those that
	// were created.
	CPUSecondsPer10k      map[string]float64 `json:"cpuSecondsPer10k"`
	TableBytesPerDelivery float64            `json:"tableBytesPerDelivery"`
	WALBytesPerDelivery   float64            `json:"walBytesPerDelivery"`
	// RSSPeakMB is the peak resident memory of a node during the phase, in MiB; of several nodes, the largest.
	RSSPeakMB float64 `json:"rssPeakMB"`
}

func (f *figures) addPublish(l *load) {
	f.PublishSeconds, f.AcceptedPerSecond = perSecond(l.published, l.to.Sub(l.from))
	f.PublishLatencyMs, f.PublishStallMs = latencies(l.took), millis(l.stall)
}

// addCounts counts deliveries from began to the last one that was recorded, and divides the growth and the CPU time of
// the phase by n deliveries.
func (f *figures) addCounts(before, after counts, began time.Time, n int64) {
	if last := after.lastEndedAt; last != nil {
		f.DeliverSeconds, f.DeliveredPerSecond = perSecond(after.delivered-before.delivered, last.Sub(began))
	}
	if requests := after.sink.requests - before.sink.requests; requests > 0 {
		f.EventsPerAttempt = round(float64(after.sink.received-before.sink.received)/float64(requests), 1)
	}
	f.CPUSeconds = used(before.cpu, after.cpu)
	if n > 0 {
		f.TableBytesPerDelivery = round(float64(after.tables-before.tables)/float64(n), 0)
		f.WALBytesPerDelivery = round(float64(after.wal-before.wal)/float64(n), 0)
		f.CPUSecondsPer10k = perUnit(f.CPUSeconds, float64(n)/10_000, 3)
	}
}

func (p *phase) addArrivals(arrivals []arrival) {
	var took []time.Duration
	var within, last, stall int64
	for _, a := range arrivals {
		if !a.acknowledged {
			continue
		}
		if p.sent.holds(a.at) {
			within++
			if last > 0 {
				stall = max(stall, a.at-last)
			}
			last = max(last, a.at)
		}
		if p.sent.holds(a.sentAt) {
			took = append(took, time.Duration(a.at-a.sentAt))
		}
	}
	if p.duringPublish {
		p.figures.DeliverSeconds, p.figures.DeliveredPerSecond = perSecond(within, p.sent.length())
	}
	p.figures.DeliveryStallMs = millis(time.Duration(stall))
	if p.figures.LatencyMs = p.figures.PublishLatencyMs; !p.paused && took != nil {
		p.figures.LatencyMs = latencies(took)
	}
}

func (r *report) addPhases(phases []phase, arrivals []arrival) {
	for _, p := range phases {
		p.addArrivals(arrivals)
		r.Phases = append(r.Phases, p.figures)
	}
	first, last := r.Phases[0], r.Phases[len(phases)-1]
	r.figures = last
	if r.Scenario == "failing" || r.Scenario == "backlog" {
		r.Cost = map[string]float64{
			"accepted":    ratio(last.AcceptedPerSecond, first.AcceptedPerSecond),
			"delivered":   ratio(last.DeliveredPerSecond, first.DeliveredPerSecond),
			"latencyP99":  ratio(last.LatencyMs["p99"], first.LatencyMs["p99"]),
			"serviceCpu":  ratio(last.CPUSecondsPer10k["service"], first.CPUSecondsPer10k["service"]),
			"postgresCpu": ratio(last.CPUSecondsPer10k["postgres"], first.CPUSecondsPer10k["postgres"]),
		}
	}
}

// latencies are percentiles in milliseconds. The names of members with latencies end with Ms.
func latencies(took []time.Duration) map[string]float64 {
	at := func(p float64) float64 { return millis(terminal.Percentile(took, p)) }
	return map[string]float64{"p50": at(50), "p90": at(90), "p95": at(95), "p99": at(99), "max": at(100)}
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
