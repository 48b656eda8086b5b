package main

import (
	"cmp"
	"context"
	"time"

	"postrider/internal/terminal"
)

type heldCmd struct {
	terminal.OutputFlag
	Kind          string        `help:"What holds back vacuum: ${enum}." enum:"snapshot,queries,slot,none" default:"snapshot"`
	Rate          float64       `help:"Events per second." default:"1000" range:"1.."`
	Duration      time.Duration `help:"How long vacuum is held back." default:"10m" range:"1.."`
	After         time.Duration `help:"How long events are published after the release." default:"2m" range:"5.."`
	Every         time.Duration `help:"Duration of each row of the report; 0 = a minute, or a tenth of a shorter hold." range:"0.."`
	QueryDuration time.Duration `name:"query-duration" help:"queries: duration of each query." default:"120s" range:"1.."`
	Clients       int           `help:"Publishers, each with one connection; 0 = 256." range:"0.."`
	EventBytes    int           `help:"Size of an event in bytes." default:"1024" range:"320.."`
}

type heldReport struct {
	Kind       string  `json:"kind"`
	Rate       float64 `json:"rate"`
	EventBytes int     `json:"eventBytes"`
	// Rows are the parts of the load: one before the hold, those of the hold, and those after the release.
	Rows []*heldRow `json:"rows"`
	// Ratios are the figures of the last part of the hold divided by those of the first.
	Ratios map[string]float64 `json:"ratios"`
	// RecoveredSeconds is the time from the release to the first 5 s with 0.95 of the rate and a p99 of at most 1.5 times
	// that of the first part of the hold. RemovedSeconds is the time until vacuums have removed 99 % of the rows that
	// were dead at the release. -1: not before the end.
	RecoveredSeconds float64 `json:"recoveredSeconds"`
	RemovedSeconds   float64 `json:"removedSeconds"`

	outcome
	Ended int64 `json:"ended"` // deliveries that were dead-lettered, dropped or canceled
	common

	released time.Time
}

// heldRow has the figures of a part of the load, and the state of the database at its end.
type heldRow struct {
	Phase              string             `json:"phase"`  // before, held or after
	Minute             float64            `json:"minute"` // its end, since the hold began
	DeliveredPerSecond float64            `json:"deliveredPerSecond"`
	Latency            map[string]float64 `json:"latencyMs"` // from the due time of a publish to the arrival
	// CPU is per 10,000 deliveries. HoldCPUSeconds, of the sessions that hold back vacuum, is not in it.
	CPU            map[string]float64 `json:"cpuSecondsPer10k"`
	HoldCPUSeconds float64            `json:"holdCpuSeconds"`
	tableState

	span      span
	used      map[string]float64
	took      []time.Duration
	delivered int64
}

// Run publishes at a constant rate before, during and after a hold.
func (c *heldCmd) Run(ctx context.Context, p *program) error {
	c.Every = cmp.Or(c.Every, min(time.Minute, c.Duration/10))
	o := &heldReport{Kind: c.Kind, Rate: c.Rate, EventBytes: c.EventBytes, RemovedSeconds: -1}
	if err := withSystem(ctx, p, "", "held", &o.common, func(s *system) {
		r := &heldRun{system: s, heldCmd: c, report: o}
		to := s.measuredTopic("bench", subscription{"sink", "/sink", nil})
		o.addLoad(s.publishLoad(&load{
			targets: []target{to}, clients: cmp.Or(c.Clients, defaultClients), rate: c.Rate,
			duration: warmUp + c.Every + c.Duration + c.After, eventBytes: c.EventBytes, eventsPerRequest: 1,
		}, r.measure))
		s.drain(o.Published)
		counted, arrivals := s.conclude(&o.outcome)
		o.Ended = counted.otherwise + counted.deadLettered
		if s.ctx.Err() == nil {
			o.addArrivals(arrivals)
		}
	}); err != nil {
		return err
	}
	return finish(c.OutputFlag, o, o.err(o.Ended, 0))
}

// warmUp: the first seconds of a load are its slowest.
const warmUp = 5 * time.Second

// heldRun is one run.
type heldRun struct {
	*system
	*heldCmd
	report *heldReport
	dead   *tableState // at the release, while its dead rows are not removed
}

// measure measures while the load runs.
func (r *heldRun) measure() {
	from := time.Now().Add(warmUp)
	r.waitUntil(from)
	began := from.Add(r.Every)
	until := func(phase string, end time.Time) {
		for ; from.Before(end) && r.ctx.Err() == nil; from = from.Add(r.Every) {
			w := &heldRow{Phase: phase, span: span{from, from.Add(min(r.Every, end.Sub(from)))}}
			before := r.cpu()
			r.watch(w.span.to)
			w.used, w.tableState = used(before, r.cpu()), r.tableState()
			w.Minute, w.HoldCPUSeconds = round(w.span.to.Sub(began).Minutes(), 2), w.used[holder]
			r.report.Rows = append(r.report.Rows, w)
			r.say("%s, minute %g: horizon %d transactions old, dead rows %v", phase, w.Minute, w.HorizonAge, w.DeadRows)
		}
		from = end
	}
	until("before", began)
	release := r.hold()
	until("held", began.Add(r.Duration))
	dead := r.tableState()
	release()
	r.dead, r.report.released = &dead, time.Now()
	until("after", began.Add(r.Duration+r.After))
}

// addArrivals adds the figures that follow from the arrivals.
func (r *heldReport) addArrivals(arrivals []arrival) {
	const step, steps = time.Second, 5
	seconds := make([]heldRow, max(int(r.Rows[len(r.Rows)-1].span.to.Sub(r.released)/step), 0)) // after the release
	for _, a := range arrivals {
		for _, w := range r.Rows {
			if w.span.holds(a.at) {
				w.delivered++
			}
			if w.span.holds(a.sentAt) {
				w.took = append(w.took, time.Duration(a.at-a.sentAt))
			}
		}
		arrived, sent := a.at-r.released.UnixNano(), a.sentAt-r.released.UnixNano()
		for i := range steps { // a window has five seconds
			if k := int(arrived/int64(step)) - i; arrived >= 0 && k >= 0 && k < len(seconds) {
				seconds[k].delivered++
			}
			if k := int(sent/int64(step)) - i; sent >= 0 && k >= 0 && k < len(seconds) {
				seconds[k].took = append(seconds[k].took, time.Duration(a.at-a.sentAt))
			}
		}
	}
	var first, last *heldRow
	for _, w := range r.Rows {
		w.Latency = latencies(w.took)
		_, w.DeliveredPerSecond = perSecond(w.delivered, w.span.length())
		w.CPU = perUnit(w.used, float64(max(w.delivered, 1))/10_000, 3)
		if w.Phase == "held" {
			first, last = cmp.Or(first, w), w
		}
	}
	r.Ratios = map[string]float64{
		"delivered":   ratio(last.DeliveredPerSecond, first.DeliveredPerSecond),
		"p50":         ratio(last.Latency["p50"], first.Latency["p50"]),
		"p99":         ratio(last.Latency["p99"], first.Latency["p99"]),
		"serviceCpu":  ratio(last.CPU["service"], first.CPU["service"]),
		"postgresCpu": ratio(last.CPU["postgres"], first.CPU["postgres"]),
	}
	r.RecoveredSeconds = -1
	for k := 0; k+steps <= len(seconds) && r.RecoveredSeconds < 0; k++ {
		rate := float64(seconds[k].delivered) / steps
		if p99 := latencies(seconds[k].took)["p99"]; rate >= 0.95*r.Rate && p99 <= 1.5*first.Latency["p99"] {
			r.RecoveredSeconds = float64(k)
		}
	}
}
