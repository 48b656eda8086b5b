package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// ThroughputReport is what a Throughput run came to. Times are on one clock, the machine's.
type ThroughputReport struct {
	Command       string `json:"command"`
	Clients       int    `json:"clients"`
	EventBytes    int    `json:"eventBytes"`
	Subscriptions int    `json:"subscriptions"`

	Published int64 `json:"published"` // events answered 200
	Refused   int64 `json:"refused"`   // answered otherwise
	Failed    int64 `json:"failed"`    // not answered
	// FirstError is what the first of them met.
	FirstError string `json:"firstError,omitempty"`

	Delivered int64 `json:"delivered"` // deliveries the database calls delivered
	Ended     int64 `json:"ended"`     // in any other way: dead-lettered, dropped, canceled
	Left      int64 `json:"left"`      // neither
	// The rest is told from the ledgers of publishers and sink, not from the database: see Verdict.
	Received       int64 `json:"received"`
	Lost           int   `json:"lost"`
	Duplicates     int   `json:"duplicates"`
	Changed        int   `json:"changed"`
	Unacknowledged int   `json:"unacknowledged"`
	// LostIDs names up to ten of the lost events.
	LostIDs []string `json:"lostIds,omitempty"`

	// PublishSeconds is from the first publish to the last answer, DeliverSeconds from the first publish to the last
	// delivery that was recorded.
	PublishSeconds     float64 `json:"publishSeconds"`
	DeliverSeconds     float64 `json:"deliverSeconds"`
	PublishedPerSecond float64 `json:"publishedPerSecond"`
	DeliveredPerSecond float64 `json:"deliveredPerSecond"`
	// PublishLatency is from the request to its answer, DeliveryLatency from the same moment to the event's arrival.
	PublishLatency  Latencies `json:"publishLatency"`
	DeliveryLatency Latencies `json:"deliveryLatency"`
	// CPUSeconds are by process: postgres (with its sessions), service, sink, load; then "others", what else ran on the machine,
	// and "idle". A run beside busy others says little. What the system does not tell is absent.
	CPUSeconds map[string]float64 `json:"cpuSeconds"`

	Settings Settings `json:"settings"`
	Machine  Machine  `json:"machine"`
}

// fill takes over what was counted while everything ran.
func (t *ThroughputReport) fill(loaded LoadReport, stats SinkStats, counted rows) {
	t.Published, t.Refused, t.Failed = loaded.Published, loaded.Refused, loaded.Failed
	if loaded.FirstError != nil {
		t.FirstError = loaded.FirstError.Error()
	}
	t.Delivered, t.Ended, t.Left = counted.Delivered, counted.Ended, counted.Left
	t.PublishLatency, t.DeliveryLatency = loaded.Latency, stats.Latency
	last := time.Unix(0, stats.LastAt)
	if counted.LastDeliveredAt != nil && counted.LastDeliveredAt.After(last) {
		last = *counted.LastDeliveredAt
	}
	t.PublishSeconds, t.PublishedPerSecond = rate(loaded.Published, loaded.EndedAt.Sub(loaded.StartedAt))
	t.DeliverSeconds, t.DeliveredPerSecond = rate(counted.Delivered, last.Sub(loaded.StartedAt))
}

// judge takes over what the ledgers say.
func (t *ThroughputReport) judge(v Verdict) {
	t.Received, t.Lost, t.Duplicates = int64(v.Received), len(v.Lost), v.Duplicates
	t.Changed, t.Unacknowledged, t.LostIDs = len(v.Changed), len(v.Unacknowledged), v.Lost[:min(len(v.Lost), 10)]
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

// Err is nil when every acknowledged event was delivered, unchanged, and recorded as delivered.
func (t ThroughputReport) Err() error {
	wrong := listed([]tally{
		{int64(t.Lost), "lost"}, {int64(t.Changed), "changed on the way"}, {t.Left, "left undelivered"}, {t.Ended, "given up"},
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

// String is the report for a person, a few lines without the last line's end.
func (t ThroughputReport) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s "+format+"\n", append([]any{name}, args...)...)
	}
	latency := func(l Latencies) string {
		return fmt.Sprintf("p50 %.1f  p90 %.1f  p99 %.1f  max %.1f ms", l.P50, l.P90, l.P99, l.Max)
	}
	line("published", "%d events of %d bytes in %.1f s: %.0f/s", t.Published, t.EventBytes, t.PublishSeconds, t.PublishedPerSecond)
	line("delivered", "%d in %.1f s: %.0f/s", t.Delivered, t.DeliverSeconds, t.DeliveredPerSecond)
	line("left, lost", "%d, %d (duplicates %d, changed %d, given up %d)", t.Left, t.Lost, t.Duplicates, t.Changed, t.Ended)
	if t.Refused+t.Failed > 0 {
		line("not accepted", "%d refused, %d unanswered; first: %s", t.Refused, t.Failed, t.FirstError)
	}
	line("publish latency", "%s", latency(t.PublishLatency))
	line("delivery latency", "%s", latency(t.DeliveryLatency))
	line("CPU seconds", "%s", cpuText(t.CPUSeconds))
	line("PostgreSQL", "%s", t.Settings)
	line("machine", "%s", t.Machine)
	line("command", "%s", t.Command)
	return strings.TrimSuffix(b.String(), "\n")
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
	return fmt.Sprintf("%s, fsync %s, synchronous_commit %s, full_page_writes %s", s.Version, s.Fsync, s.SynchronousCommit, s.FullPageWrites)
}

// String is the machine for a person.
func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %.0f GB, %s; service, database, publishers and sink share it", m.CPUs, m.Model, float64(m.MemoryBytes)/(1<<30), m.OS)
}
