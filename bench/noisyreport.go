package bench

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// leastThroughput and mostP99 are the bounds of what noise may cost the others: a fifth of their throughput, and a
	// doubled 99th percentile.
	leastThroughput = 0.8
	mostP99         = 2.0
)

// NoisyReport is what a Noisy run came to.
type NoisyReport struct {
	Command  string        `json:"command"`
	Results  []NoisyResult `json:"results"`
	Settings Settings      `json:"settings"`
	Machine  Machine       `json:"machine"`
}

// NoisyResult is one scenario. Unless it says noise, a figure is of the others.
type NoisyResult struct {
	Scenario      string `json:"scenario"`
	Topics        int    `json:"topics"`
	Subscriptions int    `json:"subscriptions"`
	Clients       int    `json:"clients"`
	EventBytes    int    `json:"eventBytes"`

	// Baseline is without the noise, Noisy with it; of topics, Baseline is of one topic and Noisy of the many.
	Baseline PhaseReport `json:"baseline"`
	Noisy    PhaseReport `json:"noisy"`
	// Again is of topics: the one topic once more, with the many there. If it differs from Baseline, either they cost the
	// others something by being there, or the machine has changed meanwhile.
	Again *PhaseReport `json:"again,omitempty"`
	// FirstSecond and FirstFiveSeconds are the latency of the noise's beginning.
	FirstSecond      Latencies      `json:"firstSecondMs"`
	FirstFiveSeconds Latencies      `json:"firstFiveSecondsMs"`
	Seconds          []SecondReport `json:"secondsOfNoise"`
	WorstSecond      int            `json:"worstSecond"` // the index in Seconds of the lowest throughput
	Ratios           Ratios         `json:"ratios"`
	Bounds           []Bound        `json:"bounds"`

	Noise NoiseReport `json:"noise"`

	// The whole load of the others, warm-up included. See Report.
	Published      int64    `json:"published"`
	Refused        int64    `json:"refused"`
	Failed         int64    `json:"failed"`
	FirstError     string   `json:"firstError,omitempty"`
	Delivered      int64    `json:"delivered"`
	Ended          int64    `json:"ended"`
	Left           int64    `json:"left"`
	Received       int64    `json:"received"`
	Lost           int      `json:"lost"`
	Duplicates     int      `json:"duplicates"`
	Changed        int      `json:"changed"`
	Unacknowledged int      `json:"unacknowledged"`
	LostIDs        []string `json:"lostIds,omitempty"`
}

// NoiseReport is what the bad endpoints were owed and got. Of topics it is empty.
type NoiseReport struct {
	Endpoints int    `json:"endpoints"`
	Policy    string `json:"policy,omitempty"`
	Owed      int64  `json:"owed"`      // deliveries, when the noise began
	Published int64  `json:"published"` // events, those of Owed included
	// Calls is how many delivery attempts met them while the noise lasted; FirstCallAfter is when the first one did, in
	// seconds from its beginning, 0 when none did.
	Calls          int64   `json:"calls"`
	FirstCallAfter float64 `json:"firstCallAfterSeconds"`
	// Unaccounted are deliveries of accepted events that the database knows nothing of: pending, dead-lettered, anything.
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

// Bound is a ratio that noise must keep.
type Bound struct {
	Name   string  `json:"name"` // throughput or p99
	AtMost bool    `json:"atMost"`
	Limit  float64 `json:"limit"`
	Value  float64 `json:"value"`
	Met    bool    `json:"met"`
}

func (b Bound) String() string {
	sign, verdict := ">=", "not met"
	if b.AtMost {
		sign = "<="
	}
	if b.Met {
		verdict = "met"
	}
	return fmt.Sprintf("%s %g: %s", sign, b.Limit, verdict)
}

// compare fills in ratios and bounds.
func (r *NoisyResult) compare() {
	was := r.Baseline
	r.Ratios = Ratios{
		Throughput: ratio(r.Noisy.DeliveredPerSecond, was.DeliveredPerSecond),
		P50:        ratio(r.Noisy.Latency.P50, was.Latency.P50), P99: ratio(r.Noisy.Latency.P99, was.Latency.P99),
		FirstSecondP99:      ratio(r.FirstSecond.P99, was.Latency.P99),
		FirstFiveSecondsP99: ratio(r.FirstFiveSeconds.P99, was.Latency.P99),
	}
	if len(r.Seconds) > 0 {
		r.Ratios.WorstSecondThroughput = r.Seconds[r.WorstSecond].Ratio
	}
	r.Bounds = []Bound{
		{Name: "throughput", Limit: leastThroughput, Value: r.Ratios.Throughput, Met: r.Ratios.Throughput >= leastThroughput},
	}
	if r.Scenario != ScenarioTopics {
		// A phase in which nothing arrived has no p99, and meets no bound.
		met := r.Ratios.P99 > 0 && r.Ratios.P99 <= mostP99
		r.Bounds = append(r.Bounds, Bound{Name: "p99", AtMost: true, Limit: mostP99, Value: r.Ratios.P99, Met: met})
	}
}

// add takes over what the publishers saw; a scenario may have several loads.
func (r *NoisyResult) add(l LoadReport) {
	r.Published, r.Refused, r.Failed = r.Published+l.Published, r.Refused+l.Refused, r.Failed+l.Failed
	if l.FirstError != nil && r.FirstError == "" {
		r.FirstError = l.FirstError.Error()
	}
}

// judge takes over what the ledgers say.
func (r *NoisyResult) judge(v Verdict) {
	r.Received, r.Lost, r.Duplicates = int64(v.Received), len(v.Lost), v.Duplicates
	r.Changed, r.Unacknowledged, r.LostIDs = len(v.Changed), len(v.Unacknowledged), v.Lost[:min(len(v.Lost), 10)]
}

// Err is nil when nothing was lost in any scenario: every acknowledged event of the others was delivered, unchanged,
// and recorded as delivered, and the database knows of every delivery that the bad endpoints are owed.
func (n NoisyReport) Err() error {
	var errs []error
	for _, r := range n.Results {
		wrong := listed([]tally{
			{int64(r.Lost), "lost"},
			{int64(r.Changed), "changed on the way"},
			{r.Left, "left undelivered"},
			{r.Ended, "given up"},
			{r.Noise.Unaccounted, "of the noise unaccounted for"},
		})
		if wrong != "" {
			errs = append(errs, fmt.Errorf("%s: of %d events published: %s", r.Scenario, r.Published, wrong))
		}
	}
	return errors.Join(errs...)
}

// Unmet is nil when all bounds were met; else it names those that were not.
func (n NoisyReport) Unmet() error {
	var errs []error
	for _, r := range n.Results {
		for _, b := range r.Bounds {
			if !b.Met {
				errs = append(errs,
					fmt.Errorf("%s: %s %g is not %s", r.Scenario, b.Name, b.Value, strings.TrimSuffix(b.String(), ": not met")))
			}
		}
	}
	return errors.Join(errs...)
}

// String is the report for a person, without the last line's end.
func (n NoisyReport) String() string {
	var b strings.Builder
	for _, r := range n.Results {
		r.print(&b)
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%-10s  %s\n%-10s  %s\n%-10s  %s", "PostgreSQL", n.Settings, "machine", n.Machine, "command",
		n.Command)
	return b.String()
}

func (r NoisyResult) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", r.Scenario, r.title())
	row := func(name, format string, before, after, quotient float64, verdict string) {
		line := fmt.Sprintf("  %-20s "+format+" "+format+" %9.2f   %s", name, before, after, quotient, verdict)
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
	before, after := r.phaseNames()
	fmt.Fprintf(b, "  %-20s %12s %12s %9s\n", "", before, after, "ratio")
	was, is, verdicts := r.Baseline, r.Noisy, r.verdicts()
	const number, ms = "%12.0f", "%12.1f"
	row("delivered/s", number, was.DeliveredPerSecond, is.DeliveredPerSecond, r.Ratios.Throughput, verdicts["throughput"])
	if len(r.Seconds) > 0 {
		row("  worst second", number, was.DeliveredPerSecond, float64(r.Seconds[r.WorstSecond].Delivered),
			r.Ratios.WorstSecondThroughput, fmt.Sprintf("second %d", r.WorstSecond+1))
	}
	if r.Again != nil {
		row("  one topic again", number, was.DeliveredPerSecond, r.Again.DeliveredPerSecond,
			ratio(r.Again.DeliveredPerSecond, was.DeliveredPerSecond), "")
	}
	row("latency p50 ms", ms, was.Latency.P50, is.Latency.P50, r.Ratios.P50, "")
	row("latency p99 ms", ms, was.Latency.P99, is.Latency.P99, r.Ratios.P99, verdicts["p99"])
	row("  first second", ms, was.Latency.P99, r.FirstSecond.P99, r.Ratios.FirstSecondP99, "")
	row("  first 5 seconds", ms, was.Latency.P99, r.FirstFiveSeconds.P99, r.Ratios.FirstFiveSecondsP99, "")
	r.printRest(b)
}

func (r NoisyResult) printRest(b *strings.Builder) {
	if len(r.Seconds) > 0 {
		fmt.Fprintf(b, "  per second           %s\n",
			r.perSecond(func(s SecondReport) string { return fmt.Sprint(s.Delivered) }))
		fmt.Fprintf(b, "  p99 per second, ms   %s\n",
			r.perSecond(func(s SecondReport) string { return fmt.Sprintf("%.0f", s.P99) }))
	}
	fmt.Fprintf(b, "  left, lost           %d, %d of %d (duplicates %d, changed %d, given up %d)\n", r.Left, r.Lost,
		r.Published, r.Duplicates, r.Changed, r.Ended)
	if r.Refused+r.Failed > 0 {
		fmt.Fprintf(b, "  not accepted         %d refused, %d unanswered; first: %s\n", r.Refused, r.Failed, r.FirstError)
	}
	if r.Noise.Endpoints > 0 {
		fmt.Fprintf(b,
			"  noise                %d calls, the first after %.2f s; owed %d and %d more published, %d unaccounted for\n",
			r.Noise.Calls, r.Noise.FirstCallAfter, r.Noise.Owed, r.Noise.Published-r.Noise.Owed, r.Noise.Unaccounted)
	}
	before, after := r.phaseNames()
	for _, phase := range []struct {
		name string
		used map[string]float64
	}{{before, r.Baseline.CPUSeconds}, {after, r.Noisy.CPUSeconds}} {
		if len(phase.used) > 0 {
			fmt.Fprintf(b, "  CPU s, %-13s %s\n", phase.name, cpuText(phase.used))
		}
	}
}

func (r NoisyResult) phaseNames() (before, after string) {
	if r.Scenario == ScenarioTopics {
		return "one topic", "many"
	}
	return "baseline", "noise"
}

func (r NoisyResult) title() string {
	if r.Scenario == ScenarioTopics {
		return fmt.Sprintf("%s with one event subscription each, against one topic with one", counted(r.Topics, "topic"))
	}
	what := "never answering"
	if r.Scenario == ScenarioRetries {
		what = "answering 503, with all retries due at one moment"
	}
	return fmt.Sprintf("%s on %s, beside %s %s (%s)", counted(r.Subscriptions, "event subscription"),
		counted(r.Topics, "topic"),
		counted(r.Noise.Endpoints, "endpoint"), what, r.Noise.Policy)
}

// counted is a number of things in words.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (r NoisyResult) verdicts() map[string]string {
	verdicts := map[string]string{}
	for _, b := range r.Bounds {
		verdicts[b.Name] = b.String()
	}
	return verdicts
}

func (r NoisyResult) perSecond(text func(SecondReport) string) string {
	words := make([]string, 0, len(r.Seconds))
	for _, s := range r.Seconds {
		words = append(words, text(s))
	}
	return strings.Join(words, " ")
}
