package bench

import "time"

// PhaseReport is what the others got in one phase. What counts is what arrived at the sink, each event once.
type PhaseReport struct {
	StartedAt          time.Time `json:"startedAt"`
	Seconds            float64   `json:"seconds"`
	Delivered          int64     `json:"delivered"` // arrived in the phase
	DeliveredPerSecond float64   `json:"deliveredPerSecond"`
	// Latency is from an event's publish to its arrival. In the noise it is of every event that arrived after the
	// beginning and was sent before the end, whenever it arrived: neither what was on its way at the beginning nor what
	// came late is left out.
	Latency Latencies `json:"latencyMs"`
	// CPUSeconds are by process, as in Figures, while the phase lasted.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
}

// SecondReport is one second of the noise. Its latency is of the events sent in it, and in the first second also of
// those that were on their way when the noise began.
type SecondReport struct {
	Delivered int64   `json:"delivered"`
	Ratio     float64 `json:"ratio"` // to the baseline's average second
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
}

// firstSeconds is how long a beginning is.
const firstSeconds = 5

// phases are counts and latencies of the others, before they become a report.
type phases struct {
	baseline, noisy         span
	before, after           Histogram
	arrived, arrivedInNoise int64
	opening                 Histogram // the first five seconds
	seconds                 []second  // the whole ones of the noise
	calls                   int64     // at the bad endpoints, in the noise
	firstCall               int64     // of them; 0: none
}

type second struct {
	arrived int64
	latency Histogram
}

// sortOut gives each arrival its phase and second.
func sortOut(arrivals []Arrival, baseline, noisy span) *phases {
	p := &phases{baseline: baseline, noisy: noisy, seconds: make([]second, noisy.to.Sub(noisy.from)/time.Second)}
	for _, a := range arrivals {
		if a.Acknowledged {
			p.count(a)
			p.time(a)
		} else if noisy.holds(a.At) {
			p.calls++
			if p.firstCall == 0 || a.At < p.firstCall {
				p.firstCall = a.At
			}
		}
	}
	return p
}

// count is by the time of arrival.
func (p *phases) count(a Arrival) {
	switch {
	case p.baseline.holds(a.At):
		p.arrived++
	case p.noisy.holds(a.At):
		p.arrivedInNoise++
		if i := p.second(a.At); i < len(p.seconds) {
			p.seconds[i].arrived++
		}
	}
}

// time is by the time of sending, except that what the noise met on its way is the noise's.
func (p *phases) time(a Arrival) {
	took := time.Duration(a.At - a.SentAt)
	switch {
	case a.SentAt == 0:
	case a.At >= p.noisy.from.UnixNano() && a.SentAt < p.noisy.to.UnixNano() && a.SentAt >= p.baseline.from.UnixNano():
		p.after.Record(took)
		i := p.second(a.SentAt)
		if i < firstSeconds {
			p.opening.Record(took)
		}
		if i < len(p.seconds) {
			p.seconds[i].latency.Record(took)
		}
	case p.baseline.holds(a.SentAt):
		p.before.Record(took)
	}
}

// second is the number of the noise's second; what was before it belongs to the first.
func (p *phases) second(nanos int64) int {
	return int(max(nanos-p.noisy.from.UnixNano(), 0) / int64(time.Second))
}

// report is the phase's, with what arrived in it.
func (s span) report(arrived int64, latency *Histogram, cpu map[string]float64) PhaseReport {
	r := PhaseReport{StartedAt: s.from.UTC(), Delivered: arrived, Latency: latency.Latencies(), CPUSeconds: cpu}
	r.Seconds = round(s.to.Sub(s.from).Seconds(), 3)
	_, r.DeliveredPerSecond = rate(arrived, s.to.Sub(s.from))
	return r
}

// measure takes over what the arrivals say of the two phases.
func (r *NoisyResult) measure(arrivals []Arrival, baseline, noisy span) {
	p := sortOut(arrivals, baseline, noisy)
	r.Baseline = baseline.report(p.arrived, &p.before, r.Baseline.CPUSeconds)
	r.Noisy = noisy.report(p.arrivedInNoise, &p.after, r.Noisy.CPUSeconds)
	r.FirstFiveSeconds, r.Seconds = p.opening.Latencies(), make([]SecondReport, len(p.seconds))
	r.WorstSecond = 0
	for i := range p.seconds {
		s := &p.seconds[i]
		r.Seconds[i] = SecondReport{
			Delivered: s.arrived, Ratio: ratio(float64(s.arrived), r.Baseline.DeliveredPerSecond),
			P50: millis(s.latency.Percentile(50)), P99: millis(s.latency.Percentile(99)),
		}
		if s.arrived < p.seconds[r.WorstSecond].arrived {
			r.WorstSecond = i
		}
	}
	if len(p.seconds) > 0 {
		r.FirstSecond = p.seconds[0].latency.Latencies()
	}
	r.Noise.Calls = p.calls
	if p.firstCall > 0 {
		r.Noise.FirstCallAfter = round(float64(p.firstCall-noisy.from.UnixNano())/1e9, 3)
	}
	r.compare()
}

// measureAgain takes over what the arrivals say of a phase that stands alone.
func (r *NoisyResult) measureAgain(arrivals []Arrival, again span) {
	p := sortOut(arrivals, again, span{farFuture, farFuture})
	phase := again.report(p.arrived, &p.before, r.Again.CPUSeconds)
	r.Again = &phase
}

// farFuture is after every run.
var farFuture = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)

// ratio is 0 when there is nothing to compare with.
func ratio(value, to float64) float64 {
	if to == 0 {
		return 0
	}
	return round(value/to, 3)
}
