package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is what a run of a scenario came to. Times are on one clock, the machine's. Its own Figures are those of the
// last phase, the one that the scenario is about.
type Report struct {
	Scenario         string `json:"scenario"`
	Command          string `json:"command"`
	Clients          int    `json:"clients"`
	EventBytes       int    `json:"eventBytes"`
	EventsPerRequest int    `json:"eventsPerRequest"`
	Subscriptions    int    `json:"subscriptions"`

	Figures
	// Phases are all that was measured, in its order.
	Phases []Figures `json:"phases"`
	// Cost is the last phase against the first, of two of the same load: failing and backlog.
	Cost *Cost `json:"cost,omitempty"`

	// Ceilings are what parts of the machine reach alone; nil when they were not measured.
	Ceilings *Ceilings `json:"ceilings"`
	// RatioToRiverPost is what was delivered, or dead-lettered, per second against Ceilings.RiverPost; nil without one.
	RatioToRiverPost *float64 `json:"ratioToRiverPost"`

	// What follows is of the whole run.
	Published int64 `json:"published"` // events answered 200
	Refused   int64 `json:"refused"`   // answered otherwise
	Failed    int64 `json:"failed"`    // not answered
	// FirstError is what the first of them met.
	FirstError string `json:"firstError,omitempty"`

	Delivered    int64 `json:"delivered"`    // deliveries the database calls delivered
	DeadLettered int64 `json:"deadLettered"` // given up, with a dead letter: what deadletters wants, a failure elsewhere
	Ended        int64 `json:"ended"`        // in any other way: dropped, canceled
	Left         int64 `json:"left"`         // neither
	// The next five are told from the ledgers of publishers and sink, not from the database: see Verdict. Of deadletters,
	// the dead letters themselves stand in for the sink's.
	Received       int64 `json:"received"`
	Lost           int   `json:"lost"`
	Duplicates     int   `json:"duplicates"`
	Changed        int   `json:"changed"`
	Unacknowledged int   `json:"unacknowledged"`
	// LostIDs names up to ten of the lost events.
	LostIDs []string `json:"lostIds,omitempty"`
	// Waiting is the backlog that was there to the end; Unaccounted are accepted events whose delivery it lacks.
	Waiting     int64 `json:"waiting,omitempty"`
	Unaccounted int64 `json:"unaccounted,omitempty"`

	// Checkpoints were forced while something was measured, one in the middle of each phase; 0 in a database that forbids
	// it.
	Checkpoints int      `json:"checkpoints"`
	Settings    Settings `json:"settings"`
	Machine     Machine  `json:"machine"`
}

// Figures are of one phase.
type Figures struct {
	Phase string `json:"phase"`
	// AcceptedPerSecond are events answered with 200, from the first publish to the last answer, which is PublishSeconds.
	AcceptedPerSecond float64 `json:"acceptedPerSecond"`
	PublishSeconds    float64 `json:"publishSeconds"`
	// DeliveredPerSecond are deliveries, from the first publish to the last one that was recorded, which is
	// DeliverSeconds. In failing they are what arrived in PublishSeconds: the last retries come long after.
	DeliveredPerSecond float64 `json:"deliveredPerSecond"`
	DeliverSeconds     float64 `json:"deliverSeconds"`
	// DeadLettersPerSecond are counted in the same way.
	DeadLettersPerSecond float64 `json:"deadLettersPerSecond,omitempty"`
	// EventsPerAttempt is how many events a request that the sink acknowledged had on average.
	EventsPerAttempt float64 `json:"eventsPerAttempt"`
	// LatencyMs is from an event's publish to its arrival; in an open loop from when it was due. Where delivery is paused
	// it is PublishLatencyMs, and of what was published before the phase there is none.
	LatencyMs Latencies `json:"latencyMs,omitzero"`
	// PublishLatencyMs is from the same moment to the answer.
	PublishLatencyMs Latencies `json:"publishLatencyMs,omitzero"`
	// PublishStallMs is the longest time in which nothing was accepted from anybody, DeliveryStallMs in which nothing
	// arrived while events were published.
	PublishStallMs  float64 `json:"publishStallMs,omitempty"`
	DeliveryStallMs float64 `json:"deliveryStallMs,omitempty"`

	// CPUSeconds are by process: postgres (with its sessions), service, sink, load; then "others", what else ran on the
	// machine, and "idle". A run beside busy others says little. What the system does not tell is absent.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`
	// CPUSecondsPer10k are those of service and postgres for 10,000 deliveries. This and the next two are divided by the
	// deliveries that ended in the phase; where delivery is paused, by those that were made.
	CPUSecondsPer10k map[string]float64 `json:"cpuSecondsPer10k"`
	// TableBytesPerDelivery is what our tables and their indexes have grown by, WALBytesPerDelivery what the server wrote
	// to its write-ahead log.
	TableBytesPerDelivery float64 `json:"tableBytesPerDelivery"`
	WALBytesPerDelivery   float64 `json:"walBytesPerDelivery"`
	// RSSPeakMB is the most memory (resident, MiB) that the service has had since the phase began.
	RSSPeakMB float64 `json:"rssPeakMB"`
}

// Cost are figures divided by those of another phase.
type Cost struct {
	Accepted    float64 `json:"accepted"`
	Delivered   float64 `json:"delivered"`
	LatencyP99  float64 `json:"latencyP99"`
	ServiceCPU  float64 `json:"serviceCpu"`  // per delivery, as the next
	PostgresCPU float64 `json:"postgresCpu"` // 0 when it is not known
}

func newReport(o Options) Report {
	return Report{
		Scenario: o.Scenario, Command: o.Command, Machine: thisMachine(), Clients: o.Clients, EventBytes: o.EventBytes,
		EventsPerRequest: o.EventsPerRequest, Subscriptions: o.Subscriptions,
	}
}

// publish takes over what the publishers saw.
func (f *Figures) publish(l LoadReport) {
	f.PublishSeconds, f.AcceptedPerSecond = rate(l.Published, l.EndedAt.Sub(l.StartedAt))
	f.PublishLatencyMs, f.PublishStallMs = l.Latency, round(l.Stall.Seconds()*1000, 1)
}

// deliver takes over what ended between two looks, counted from a moment.
func (f *Figures) deliver(before, after look, began time.Time) {
	last := time.Unix(0, after.sink.LastAt)
	if recorded := after.rows.LastEndedAt; recorded != nil && recorded.After(last) {
		last = *recorded
	}
	_, f.DeadLettersPerSecond = rate(after.rows.DeadLettered-before.rows.DeadLettered, last.Sub(began))
	f.DeliverSeconds, f.DeliveredPerSecond = rate(after.rows.Delivered-before.rows.Delivered, last.Sub(began))
	if requests := after.sink.Requests - before.sink.Requests; requests > 0 {
		f.EventsPerAttempt = round(float64(after.sink.Received-before.sink.Received)/float64(requests), 1)
	}
}

// each divides what was spent between two looks by a number of deliveries.
func (f *Figures) each(before, after look, n int64) {
	if n <= 0 {
		return
	}
	f.TableBytesPerDelivery = round(float64(after.weight.Tables-before.weight.Tables)/float64(n), 0)
	f.WALBytesPerDelivery = round(float64(after.weight.WAL-before.weight.WAL)/float64(n), 0)
	f.CPUSecondsPer10k = map[string]float64{}
	for _, name := range []string{"service", "postgres"} {
		if seconds, known := f.CPUSeconds[name]; known {
			f.CPUSecondsPer10k[name] = round(seconds/float64(n)*10_000, 3)
		}
	}
}

// arrive takes over what the arrivals say of a phase.
func (p *phase) arrive(arrivals []Arrival) {
	var latency Histogram
	var within, last, stall int64
	for _, a := range arrivals {
		if a.Acknowledged == p.refused {
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
			latency.Record(time.Duration(a.At - a.SentAt))
		}
	}
	if p.window {
		p.figures.DeliverSeconds, p.figures.DeliveredPerSecond = rate(within, p.sent.to.Sub(p.sent.from))
	}
	if !p.paused {
		p.figures.LatencyMs = latency.Latencies()
		p.figures.DeliveryStallMs = round(time.Duration(stall).Seconds()*1000, 1)
	}
}

// add takes over what the publishers saw.
func (t *Report) add(l LoadReport) {
	t.Published, t.Refused, t.Failed = t.Published+l.Published, t.Refused+l.Refused, t.Failed+l.Failed
	if l.FirstError != nil && t.FirstError == "" {
		t.FirstError = l.FirstError.Error()
	}
}

// count takes over what the database says.
func (t *Report) count(r rows) {
	t.Delivered, t.DeadLettered, t.Ended, t.Left = r.Delivered, r.DeadLettered, r.Ended, r.Left
}

// judge takes over what the ledgers say.
func (t *Report) judge(v Verdict) {
	t.Received, t.Lost, t.Duplicates = int64(v.Received), len(v.Lost), v.Duplicates
	t.Changed, t.Unacknowledged, t.LostIDs = len(v.Changed), len(v.Unacknowledged), v.Lost[:min(len(v.Lost), 10)]
}

// conclude takes over the phases, and compares.
func (t *Report) conclude(phases []phase, arrivals []Arrival) {
	for _, p := range phases {
		p.arrive(arrivals)
		t.Phases = append(t.Phases, p.figures)
	}
	if len(phases) == 0 {
		return
	}
	t.Figures = t.Phases[len(phases)-1]
	if t.Scenario == "failing" || t.Scenario == "backlog" {
		t.Cost = t.Figures.against(t.Phases[0])
	}
	ended := t.DeliveredPerSecond + t.DeadLettersPerSecond
	if t.Ceilings != nil && t.Ceilings.RiverPost > 0 && ended > 0 {
		share := ratio(ended, t.Ceilings.RiverPost)
		t.RatioToRiverPost = &share
	}
}

func (f Figures) against(other Figures) *Cost {
	return &Cost{
		Accepted:    ratio(f.AcceptedPerSecond, other.AcceptedPerSecond),
		Delivered:   ratio(f.DeliveredPerSecond, other.DeliveredPerSecond),
		LatencyP99:  ratio(f.LatencyMs.P99, other.LatencyMs.P99),
		ServiceCPU:  ratio(f.CPUSecondsPer10k["service"], other.CPUSecondsPer10k["service"]),
		PostgresCPU: ratio(f.CPUSecondsPer10k["postgres"], other.CPUSecondsPer10k["postgres"]),
	}
}

// rate is the time in seconds and the number per second; nothing takes no time.
func rate(n int64, d time.Duration) (seconds, perSecond float64) {
	if n == 0 || d <= 0 {
		return 0, 0
	}
	return round(d.Seconds(), 3), round(float64(n)/d.Seconds(), 1)
}

func round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}

// used is the difference of two looks at CPU times, with what the machine did for others told apart.
func used(before, after map[string]float64) map[string]float64 {
	difference, ours := map[string]float64{}, 0.0
	for name, seconds := range after {
		difference[name] = round(seconds-before[name], 2)
		if name != machineBusy && name != "idle" {
			ours += seconds - before[name]
		}
	}
	if busy, ok := difference[machineBusy]; ok {
		difference["others"] = round(max(busy-ours, 0), 2)
		delete(difference, machineBusy)
	}
	return difference
}

// Err is nil when every acknowledged event was delivered, or became a dead letter where that is what is measured:
// unchanged, and recorded.
func (t Report) Err() error {
	givenUp := t.Ended
	if t.Scenario != "deadletters" {
		givenUp += t.DeadLettered
	}
	wrong := listed([]tally{
		{int64(t.Lost), "lost"},
		{int64(t.Changed), "changed on the way"},
		{t.Left, "left undelivered"},
		{givenUp, "given up"},
		{t.Unaccounted, "of the backlog unaccounted for"},
	})
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("of %d events published: %s", t.Published, wrong)
}

// tally is a number of events that something befell.
type tally struct {
	n    int64
	what string
}

// listed names what is not zero; "" when all is.
func listed(tallies []tally) string {
	var texts []string
	for _, t := range tallies {
		if t.n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", t.n, t.what))
		}
	}
	return strings.Join(texts, ", ")
}

// String is the report for a person, without the last line's end.
func (t Report) String() string {
	var b strings.Builder
	for _, f := range t.Phases {
		if len(t.Phases) > 1 {
			fmt.Fprintf(&b, "%s:\n", f.Phase)
		}
		f.print(&b)
	}
	line := printer(&b)
	if c := t.Cost; c != nil {
		line("cost", "accepted x %.2f, delivered x %.2f, p99 x %.2f, CPU per delivery: service x %.2f, postgres x %.2f",
			c.Accepted, c.Delivered, c.LatencyP99, c.ServiceCPU, c.PostgresCPU)
	}
	if t.Waiting > 0 {
		line("backlog", "%d deliveries waited to the end", t.Waiting)
	}
	line("left, lost", "%d, %d of %d (duplicates %d, changed %d, dead letters %d, given up otherwise %d)",
		t.Left, t.Lost, t.Published, t.Duplicates, t.Changed, t.DeadLettered, t.Ended)
	if t.Refused+t.Failed > 0 {
		line("not accepted", "%d refused, %d unanswered; first: %s", t.Refused, t.Failed, t.FirstError)
	}
	if t.Ceilings != nil {
		line("ceilings", "%s", t.Ceilings)
	}
	if t.RatioToRiverPost != nil {
		line("of River + POST", "%.2f", *t.RatioToRiverPost)
	}
	line("PostgreSQL", "%s", t.Settings)
	line("machine", "%s", t.Machine)
	line("command", "%s", t.Command)
	return strings.TrimSuffix(b.String(), "\n")
}

// printer prints lines of a name and what it stands for.
func printer(b *strings.Builder) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-18s "+format+"\n", append([]any{name}, args...)...)
	}
}

func (f Figures) print(b *strings.Builder) {
	line := printer(b)
	if f.AcceptedPerSecond > 0 {
		line("accepted", "%.0f events/s for %.1f s", f.AcceptedPerSecond, f.PublishSeconds)
	}
	if f.DeliveredPerSecond > 0 {
		line("delivered", "%.0f/s in %.1f s, %.1f events in a request", f.DeliveredPerSecond, f.DeliverSeconds,
			f.EventsPerAttempt)
	}
	if f.DeadLettersPerSecond > 0 {
		line("dead letters", "%.0f/s", f.DeadLettersPerSecond)
	}
	if f.PublishLatencyMs != (Latencies{}) {
		line("publish latency", "%s", f.PublishLatencyMs)
	}
	if f.LatencyMs != (Latencies{}) && f.LatencyMs != f.PublishLatencyMs {
		line("delivery latency", "%s", f.LatencyMs)
	}
	if f.PublishStallMs > 0 {
		line("longest silence", "%.0f ms without an answer to any publish, %.0f ms without an arrival meanwhile",
			f.PublishStallMs, f.DeliveryStallMs)
	}
	line("each delivery", "%.0f bytes of tables, %.0f of WAL; 10,000: CPU seconds %s", f.TableBytesPerDelivery,
		f.WALBytesPerDelivery, cpuText(f.CPUSecondsPer10k))
	line("CPU seconds", "%s", cpuText(f.CPUSeconds))
	line("memory", "%.0f MB of the service at its peak", f.RSSPeakMB)
}

func cpuText(seconds map[string]float64) string {
	parts := make([]string, 0, len(seconds))
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		parts = append(parts, fmt.Sprintf("%s %.1f", name, seconds[name]))
	}
	return strings.Join(parts, ", ")
}

// String is the settings for a person.
func (s Settings) String() string {
	return fmt.Sprintf("%s, fsync %s, synchronous_commit %s, full_page_writes %s", s.Version, s.Fsync, s.SynchronousCommit,
		s.FullPageWrites)
}

// String is the machine for a person.
func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %.0f GB, %s; service, database, publishers and sink share it", m.CPUs, m.Model,
		float64(m.MemoryBytes)/(1<<30), m.OS)
}
