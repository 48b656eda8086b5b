package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	defaultDuration = 30 * time.Second
	minDuration     = time.Second
	// defaultCeilingTime is how long each ceiling is measured; River's, which needs a moment to get going, twice as long.
	defaultCeilingTime = 5 * time.Second
)

// How deliveries of the backlog wait.
const (
	WaitPaused    = "paused"    // as rows, on hold
	WaitScheduled = "scheduled" // as rows with a job each, whose time is hours away
)

// Options say what Run measures. Binary and Scenario are required; what a scenario does not use is ignored.
type Options struct {
	// Binary is the path of the postrider program; it runs as service and as sink.
	Binary string
	// Scenario is one of Scenarios.
	Scenario string
	// Duration is how long events are published in each phase; default 30 s, at least 1 s.
	Duration time.Duration
	// Clients is the number of publishing connections, each with one request in flight; default 256, or 32 with many
	// events in a request, or 16 of sql.
	Clients int
	// Rate is how many events are published per second in an open loop; 0 publishes as fast as answers come, which is the
	// default of all scenarios but latency.
	Rate float64
	// EventBytes is the size of an event's JSON object; default 1,024.
	EventBytes int
	// Subscriptions is how many event subscriptions want each event; default 1, of fanout 10.
	Subscriptions int
	// EventsPerRequest and EventsPerBatch are of publish and batched; default 100, of sql 1.
	EventsPerRequest, EventsPerBatch int
	// AnswerAfter is how long the sink of remote takes to answer; default 100 ms.
	AnswerAfter time.Duration
	// FailurePercent is how many of a hundred requests the sink of failing answers with 503; default 20.
	FailurePercent int
	// Waiting is how many deliveries wait in backlog, default 1,000,000, and Waits how; default WaitPaused.
	Waiting int
	Waits   string
	// Days is how many days retention removes; default 7.
	Days int
	// DatabaseURL is a PostgreSQL to use. It is migrated, and events of topics of this run stay in it. "" starts a private
	// one with all of its durability on, and removes it.
	DatabaseURL string
	// NoCeilings leaves the ceilings out; CeilingTime is how long each is measured, default 5 s.
	NoCeilings  bool
	CeilingTime time.Duration
	// Command is what the report says was run; "" prints the options that matter.
	Command string
}

// scenario is one row of the table of what can be measured.
type scenario struct {
	name     string
	defaults Options  // where they are not the general ones
	flags    []string // beside those that all have
	run      func(*run, context.Context) error
	verdict  func(*run, context.Context) (Verdict, error)
}

// scenarios is every scenario of Run.
func scenarios() []scenario {
	many := Options{Clients: 32, EventsPerRequest: 100, EventsPerBatch: 100}
	return []scenario{
		{name: "throughput", flags: []string{"rate", "subscriptions"}, run: (*run).throughput},
		{name: "publish", flags: []string{"events-per-request"}, defaults: many, run: (*run).publishPaused},
		{name: "sql", flags: []string{"rate", "events-per-request"}, defaults: Options{Clients: 16}, run: (*run).publishSQL},
		{name: "latency", flags: []string{"rate"}, defaults: Options{Rate: 100}, run: (*run).throughput},
		{
			name: "remote", flags: []string{"rate", "answer-after"}, defaults: Options{AnswerAfter: 100 * time.Millisecond},
			run: (*run).remote,
		},
		{
			name: "fanout", flags: []string{"rate", "subscriptions"}, defaults: Options{Subscriptions: 10},
			run: (*run).throughput,
		},
		{name: "failing", flags: []string{"rate", "percent"}, defaults: Options{FailurePercent: 20}, run: (*run).failing},
		{name: "deadletters", flags: []string{"rate"}, run: (*run).deadLetters, verdict: (*run).compareDeadLetters},
		{name: "batched", flags: []string{"events-per-request", "events-per-batch"}, defaults: many, run: (*run).batched},
		{
			name: "backlog", flags: []string{"rate", "waiting", "waits"},
			defaults: Options{Waiting: 1_000_000, Waits: WaitPaused}, run: (*run).backlog,
		},
		{name: "retention", flags: []string{"rate", "days"}, defaults: Options{Days: 7}, run: (*run).retention},
	}
}

// Scenarios are the names of all scenarios of Run.
func Scenarios() (names []string) {
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

func (o *Options) scenario() (scenario, error) {
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == o.Scenario })
	if i < 0 {
		return scenario{}, fmt.Errorf("there is no scenario %q, only %s", o.Scenario, strings.Join(Scenarios(), ", "))
	}
	return all[i], nil
}

// Prepare fills in what is not set and says what cannot be measured.
func (o *Options) Prepare() error {
	s, err := o.scenario()
	if err != nil {
		return err
	}
	d := s.defaults
	o.Duration, o.CeilingTime = orDefault(o.Duration, defaultDuration), orDefault(o.CeilingTime, defaultCeilingTime)
	o.Clients, o.EventBytes = orDefault(o.Clients, orDefault(d.Clients, defaultClients)), orDefault(o.EventBytes,
		defaultEventBytes)
	o.Rate, o.Subscriptions = orDefault(o.Rate, d.Rate), orDefault(o.Subscriptions, orDefault(d.Subscriptions, 1))
	o.EventsPerRequest, o.EventsPerBatch = orDefault(o.EventsPerRequest, orDefault(d.EventsPerRequest, 1)),
		orDefault(o.EventsPerBatch, orDefault(d.EventsPerBatch, 1))
	o.AnswerAfter, o.FailurePercent = orDefault(o.AnswerAfter, d.AnswerAfter), orDefault(o.FailurePercent,
		d.FailurePercent)
	o.Waiting, o.Waits = orDefault(o.Waiting, d.Waiting), orDefault(o.Waits, orDefault(d.Waits, WaitPaused))
	o.Days = orDefault(o.Days, d.Days)
	o.Command = orDefault(o.Command, o.command(s))
	return o.validate()
}

// command is what was run, with the flags that the scenario has.
func (o *Options) command(s scenario) string {
	values := map[string]string{
		"rate": fmt.Sprintf("%g", o.Rate), "subscriptions": fmt.Sprint(o.Subscriptions),
		"events-per-request": fmt.Sprint(o.EventsPerRequest),
		"events-per-batch":   fmt.Sprint(o.EventsPerBatch), "answer-after": o.AnswerAfter.String(),
		"percent": fmt.Sprint(o.FailurePercent),
		"waiting": fmt.Sprint(o.Waiting), "waits": o.Waits, "days": fmt.Sprint(o.Days),
	}
	text := fmt.Sprintf("postrider bench %s --duration %s --clients %d --event-bytes %d", s.name, o.Duration, o.Clients,
		o.EventBytes)
	for _, flag := range s.flags {
		if flag == "rate" && o.Rate == 0 {
			continue
		}
		text += fmt.Sprintf(" --%s %s", flag, values[flag])
	}
	return text
}

const (
	// maxEvents is what one request, and one batch, may hold.
	maxEvents = 5000
	// leastEventBytes hold the members that every event of a load has.
	leastEventBytes = 320
	// maxRequestBytes is what one request may have.
	maxRequestBytes = 1 << 20
)

func (o *Options) validate() error {
	request := o.EventsPerRequest*(o.EventBytes+1) + 1
	switch {
	case o.Binary == "":
		return errors.New("the postrider program to measure must be named")
	case o.Duration < minDuration:
		return fmt.Errorf("the duration must be %s or more, not %s", minDuration, o.Duration)
	case o.CeilingTime <= 0:
		return fmt.Errorf("the time for each ceiling must be positive, not %s", o.CeilingTime)
	case min(o.Clients, o.Subscriptions, o.EventsPerRequest, o.EventsPerBatch) < 1 || o.Rate < 0 || o.Waiting < 0 ||
		o.Days < 0 || o.Days > 300 || o.AnswerAfter < 0:
		return errors.New("all numbers must be positive")
	case o.EventBytes < leastEventBytes:
		return fmt.Errorf("an event has %d bytes at least, not %d", leastEventBytes, o.EventBytes)
	case max(o.EventsPerRequest, o.EventsPerBatch) > maxEvents:
		return fmt.Errorf("a request, and a batch, has %d events at most", maxEvents)
	case request > maxRequestBytes:
		return fmt.Errorf("a request has %d bytes at most, and %d events of %d bytes are %d", maxRequestBytes,
			o.EventsPerRequest, o.EventBytes, request)
	case o.FailurePercent < 0 || o.FailurePercent > 99:
		return fmt.Errorf("1 to 99 percent of the requests can fail, not %d", o.FailurePercent)
	case o.Waits != WaitPaused && o.Waits != WaitScheduled:
		return fmt.Errorf("deliveries wait %s or %s, not %q", WaitPaused, WaitScheduled, o.Waits)
	}
	return nil
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Run measures one scenario on a postrider of its own, on this machine and in processes as users have them, and reports
// what was published and delivered, what it cost, and whether every acknowledged event arrived, byte for byte. Progress
// goes to log: each second on a terminal, else every 5 s. Everything it started has ended when it returns.
//
// An error means that there is nothing to report: a process did not get ready or ended (with the last lines of its
// log), or nothing was accepted, or ctx ended. Events that were lost or left are no error but the report's: see
// Report.Err.
func Run(ctx context.Context, o Options, log io.Writer) (report Report, err error) {
	s, err := o.scenario()
	if err == nil {
		err = o.Prepare()
	}
	if err != nil {
		return report, fmt.Errorf("bench: %w", err)
	}
	b := &run{o: o, scenario: s, report: newReport(o)}
	if err := b.try(ctx, &lockedWriter{Writer: log}); err != nil {
		return report, fmt.Errorf("bench %s: %w", s.name, err)
	}
	return b.report, nil
}
