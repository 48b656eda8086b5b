package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of the cost of noise for the others, as ratios to the baseline.
const (
	leastThroughput = 0.8
	mostP99         = 2.0
)

// NoisyReport is the result of Noisy.
type NoisyReport struct {
	Command  string        `json:"command"`
	Results  []NoisyResult `json:"results"`
	Settings Settings      `json:"settings"`
	Machine  Machine       `json:"machine"`
}

// NoisyResult is the result of one scenario, for the others unless it names the noise.
type NoisyResult struct {
	Scenario      string `json:"scenario"`
	Topics        int    `json:"topics"`
	Subscriptions int    `json:"subscriptions"`
	Clients       int    `json:"clients"`
	EventBytes    int    `json:"eventBytes"`

	// Baseline is without noise, Noisy with it. In topics, Baseline is one topic and Noisy the many.
	Baseline PhaseReport `json:"baseline"`
	Noisy    PhaseReport `json:"noisy"`
	// Again is the second measurement of one topic in topics.
	Again *PhaseReport `json:"again,omitempty"`
	// FirstSecond and FirstFiveSeconds are latencies at the beginning of the noise.
	FirstSecond      Latencies      `json:"firstSecondMs"`
	FirstFiveSeconds Latencies      `json:"firstFiveSecondsMs"`
	Seconds          []SecondReport `json:"secondsOfNoise"`
	WorstSecond      int            `json:"worstSecond"` // index of the lowest throughput in Seconds
	Ratios           Ratios         `json:"ratios"`
	Bounds           []Bound        `json:"bounds"`
	Noise            NoiseReport    `json:"noise"`

	outcome       // of the whole load, including the warm-up
	Ended   int64 `json:"ended"` // deliveries that were dead-lettered, dropped or canceled
}

// PhaseReport is about the events that arrived in one phase, without duplicates.
type PhaseReport struct {
	StartedAt          time.Time `json:"startedAt"`
	Seconds            float64   `json:"seconds"`
	Delivered          int64     `json:"delivered"`
	DeliveredPerSecond float64   `json:"deliveredPerSecond"`
	// Latency is from an event's publish to its arrival. With noise, it includes events sent before the noise that
	// arrived later.
	Latency    Latencies          `json:"latencyMs"`
	CPUSeconds map[string]float64 `json:"cpuSeconds"` // as in Figures
}

// SecondReport is one second of the noise. Its latency is of the events sent in it; in the first second also of those
// in progress when the noise began.
type SecondReport struct {
	Delivered int64   `json:"delivered"`
	Ratio     float64 `json:"ratio"` // to the baseline's average second
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
}

// NoiseReport is about the bad endpoints. It is empty for topics.
type NoiseReport struct {
	Endpoints int    `json:"endpoints"`
	Policy    string `json:"policy,omitempty"`
	Backlog   int64  `json:"backlog"`   // pending deliveries when the noise began
	Published int64  `json:"published"` // events, including those of Backlog
	// Calls are the delivery attempts during the noise. FirstCallAfter is 0 if there was none.
	Calls          int64   `json:"calls"`
	FirstCallAfter float64 `json:"firstCallAfterSeconds"`
	// Unaccounted are accepted events without a delivery in the database.
	Unaccounted int64 `json:"unaccounted"`
}

// Ratios are the noise's figures divided by the baseline's.
type Ratios struct {
	Throughput            float64 `json:"throughput"`
	WorstSecondThroughput float64 `json:"worstSecondThroughput"`
	P50                   float64 `json:"p50"`
	P99                   float64 `json:"p99"`
	FirstSecondP99        float64 `json:"firstSecondP99"`
	FirstFiveSecondsP99   float64 `json:"firstFiveSecondsP99"`
}

// Bound is the limit of a ratio.
type Bound struct {
	Name   string  `json:"name"` // throughput or p99
	AtMost bool    `json:"atMost"`
	Limit  float64 `json:"limit"`
	Value  float64 `json:"value"`
	Met    bool    `json:"met"`
}

// String formats the bound for people.
func (b Bound) String() string {
	sign, met := ">=", "met"
	if b.AtMost {
		sign = "<="
	}
	if !b.Met {
		met = "not met"
	}
	return fmt.Sprintf("%s %g %s %g: %s", b.Name, b.Value, sign, b.Limit, met)
}

// received counts the events of a span of time.
type received struct {
	span
	n    int64           // that arrived in it
	took []time.Duration // of those sent in it
}

func (r *received) report(cpu map[string]float64) PhaseReport {
	p := PhaseReport{StartedAt: r.from.UTC(), Delivered: r.n, Latency: latencies(r.took), CPUSeconds: cpu}
	p.Seconds = round(r.length().Seconds(), 3)
	_, p.DeliveredPerSecond = perSecond(r.n, r.length())
	return p
}

// addArrivals counts by the time of arrival and measures latency by the time of sending. Events in progress when the
// noise began count as sent then.
func (r *NoisyResult) addArrivals(arrivals []arrival, baseline, noisy, again span) {
	firstFive := span{noisy.from, noisy.from.Add(min(5*time.Second, noisy.length()))}
	parts := []*received{{span: baseline}, {span: noisy}, {span: firstFive}, {span: again}}
	for from := noisy.from; !from.Add(time.Second).After(noisy.to); from = from.Add(time.Second) {
		parts = append(parts, &received{span: span{from, from.Add(time.Second)}})
	}
	for _, a := range arrivals {
		if !a.Acknowledged {
			r.Noise.addCall(a, noisy)
			continue
		}
		sent := a.SentAt
		if a.At >= noisy.from.UnixNano() && baseline.holds(sent) {
			sent = noisy.from.UnixNano()
		}
		for _, p := range parts {
			if p.holds(a.At) {
				p.n++
			}
			if p.holds(sent) {
				p.took = append(p.took, time.Duration(a.At-a.SentAt))
			}
		}
	}
	r.Baseline, r.Noisy = parts[0].report(r.Baseline.CPUSeconds), parts[1].report(r.Noisy.CPUSeconds)
	r.FirstFiveSeconds = latencies(parts[2].took)
	if r.Again != nil {
		*r.Again = parts[3].report(r.Again.CPUSeconds)
	}
	for i, s := range parts[4:] {
		l, share := latencies(s.took), ratio(float64(s.n), r.Baseline.DeliveredPerSecond)
		r.Seconds = append(r.Seconds, SecondReport{Delivered: s.n, Ratio: share, P50: l.P50, P99: l.P99})
		if i == 0 {
			r.FirstSecond = l
		}
		if s.n < r.Seconds[r.WorstSecond].Delivered {
			r.WorstSecond = i
		}
	}
	r.compare()
}

// addCall counts a delivery attempt of a bad endpoint.
func (n *NoiseReport) addCall(a arrival, noisy span) {
	after := round(float64(a.At-noisy.from.UnixNano())/1e9, 3)
	if noisy.holds(a.At) {
		if n.Calls++; n.Calls == 1 || after < n.FirstCallAfter {
			n.FirstCallAfter = after
		}
	}
}

func (r *NoisyResult) compare() {
	was, is := r.Baseline, r.Noisy
	r.Ratios = Ratios{
		Throughput: ratio(is.DeliveredPerSecond, was.DeliveredPerSecond),
		P50:        ratio(is.Latency.P50, was.Latency.P50), P99: ratio(is.Latency.P99, was.Latency.P99),
		FirstSecondP99:      ratio(r.FirstSecond.P99, was.Latency.P99),
		FirstFiveSecondsP99: ratio(r.FirstFiveSeconds.P99, was.Latency.P99),
	}
	if len(r.Seconds) > 0 {
		r.Ratios.WorstSecondThroughput = r.Seconds[r.WorstSecond].Ratio
	}
	throughput, p99 := r.Ratios.Throughput, r.Ratios.P99
	r.Bounds = []Bound{{"throughput", false, leastThroughput, throughput, throughput >= leastThroughput}}
	if r.Scenario != ScenarioTopics {
		// Without arrivals there is no p99, and the bound is not met.
		r.Bounds = append(r.Bounds, Bound{"p99", true, mostP99, p99, p99 > 0 && p99 <= mostP99})
	}
}

// Err is nil if nothing was lost: every accepted event of the others was delivered unchanged and recorded, and the
// database has a delivery for every accepted event of the noise.
func (n NoisyReport) Err() error {
	var errs []error
	for _, r := range n.Results {
		if err := r.err(r.Ended, r.Noise.Unaccounted); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Scenario, err))
		}
	}
	return errors.Join(errs...)
}

// Unmet returns an error with the bounds that were not met, or nil.
func (n NoisyReport) Unmet() error {
	var errs []error
	for _, r := range n.Results {
		for _, b := range r.Bounds {
			if !b.Met {
				errs = append(errs, fmt.Errorf("%s: %s", r.Scenario, b))
			}
		}
	}
	return errors.Join(errs...)
}

// String formats the report for people.
func (n NoisyReport) String() string {
	var p printer
	for _, r := range n.Results {
		r.print(&p)
	}
	p.line("PostgreSQL", "%s", n.Settings)
	p.line("machine", "%s", n.Machine)
	p.line("command", "%s", n.Command)
	return strings.TrimSuffix(p.String(), "\n")
}

func (r NoisyResult) print(p *printer) {
	fmt.Fprintf(p, "%s: topics %d, event subscriptions %d", r.Scenario, r.Topics, r.Subscriptions)
	first, second := "one topic", "many"
	if r.Scenario != ScenarioTopics {
		first, second = "baseline", "noise"
		fmt.Fprintf(p, ", bad endpoints %d (%s)", r.Noise.Endpoints, r.Noise.Policy)
	}
	fmt.Fprintf(p, "\n%-18s %12s %12s %8s\n", "", first, second, "ratio")
	was, is := r.Baseline, r.Noisy
	row := func(name string, was, is, ratio float64) { p.line(name, "%12.1f %12.1f %8.2f", was, is, ratio) }
	row("delivered/s", was.DeliveredPerSecond, is.DeliveredPerSecond, r.Ratios.Throughput)
	if len(r.Seconds) > 0 {
		row("worst second", was.DeliveredPerSecond, float64(r.Seconds[r.WorstSecond].Delivered),
			r.Ratios.WorstSecondThroughput)
	}
	if r.Again != nil {
		row("one topic again", was.DeliveredPerSecond, r.Again.DeliveredPerSecond,
			ratio(r.Again.DeliveredPerSecond, was.DeliveredPerSecond))
	}
	row("latency p50 ms", was.Latency.P50, is.Latency.P50, r.Ratios.P50)
	row("latency p99 ms", was.Latency.P99, is.Latency.P99, r.Ratios.P99)
	row("first second p99", was.Latency.P99, r.FirstSecond.P99, r.Ratios.FirstSecondP99)
	row("first 5 s p99", was.Latency.P99, r.FirstFiveSeconds.P99, r.Ratios.FirstFiveSecondsP99)
	for _, b := range r.Bounds {
		p.line("bound", "%s", b)
	}
	for i, s := range r.Seconds {
		p.line(fmt.Sprintf("second %d", i+1), "%d delivered, p99 %.0f ms", s.Delivered, s.P99)
	}
	r.outcome.print(p, r.Ended)
	if n := r.Noise; n.Endpoints > 0 {
		p.line("noise", "%d calls, the first after %.2f s; backlog %d, %d more published, %d without a delivery", n.Calls,
			n.FirstCallAfter, n.Backlog, n.Published-n.Backlog, n.Unaccounted)
	}
	p.line("CPU s, "+first, "%s", cpuText(was.CPUSeconds))
	p.line("CPU s, "+second, "%s", cpuText(is.CPUSeconds))
}
