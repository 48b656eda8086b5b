package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"postrider/event"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/policy"
)

// LogAttempts says which attempts leave a line in the log.
type LogAttempts string

// A line takes 10 microseconds and 600 bytes: for 5,000 attempts a second, 5 % of a core and 250 GB a day, to say what
// postrider.delivery_attempts says already. So only those are logged by default that somebody may be looking for, and
// where everything fails, no more than failedLines of them a second: a tenth of a percent of a core.
const (
	LogNone   LogAttempts = "none"
	LogFailed LogAttempts = "failed" // those that met no success, up to failedLines a second
	LogAll    LogAttempts = "all"
)

const failedLines = 100

// ration bounds how many lines there are a second.
type ration struct {
	mu            sync.Mutex
	second        time.Time
	used, leftOut int
}

// take asks for a line. leftOut is how many got none since the last one.
func (q *ration) take(now time.Time) (granted bool, leftOut int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if second := now.Truncate(time.Second); !second.Equal(q.second) {
		q.second, q.used = second, 0
	}
	if q.used++; q.used > failedLines {
		q.leftOut++
		return false, 0
	}
	leftOut, q.leftOut = q.leftOut, 0
	return true, leftOut
}

// AttemptReport is what dev prints of an attempt, and tracing makes a span of.
type AttemptReport struct {
	Topic, Subscription string
	// EventID and EventType are the first event's, of a batch of several Events.
	EventID, EventType string
	Events             int
	Number             int
	Result             policy.Result
	Duration           time.Duration
	Verdict            policy.Verdict
	Now                time.Time
	// Outcome is what the policy makes of Result. Endpoint has no query. Trace is what the events were published in.
	Outcome  policy.Outcome
	Endpoint string
	Trace    event.Trace
}

// report tells of an attempt that was recorded, or of the late answer that ended its delivery after all.
func (a *attempt) report(r *delivery.Result, met endpoint.Answer, now time.Time, late bool) {
	a.log(r, met, now, late)
	if a.engine.options.OnAttempt == nil {
		return
	}
	a.engine.options.OnAttempt(AttemptReport{
		Topic: a.sub.Topic, Subscription: a.sub.Name, Events: len(a.work.Members),
		EventID: a.work.Members[0].Event.ID, EventType: a.work.Members[0].Event.Type,
		Number: r.Number, Result: met.Result, Duration: met.Duration, Verdict: r.Verdict, Now: now,
		Outcome: r.Outcome, Endpoint: a.sub.EndpointBaseURL, Trace: a.trace,
	})
}

func (a *attempt) log(r *delivery.Result, met endpoint.Answer, now time.Time, late bool) {
	e, ctx := a.engine, context.Background()
	level := e.options.LogAttempts.level(r.Verdict.Action)
	if !e.log.Enabled(ctx, level) {
		return
	}
	leftOut := 0
	if e.options.LogAttempts == LogFailed && !e.log.Enabled(ctx, slog.LevelDebug) {
		var granted bool
		if granted, leftOut = e.lines.take(now); !granted {
			return
		}
	}
	line := a.line(r, met, late)
	if leftOut > 0 {
		line = append(line, slog.Int("left_out", leftOut))
	}
	e.log.LogAttrs(ctx, level, "delivery attempted", line...)
}

func (l LogAttempts) level(action policy.VerdictAction) slog.Level {
	if l == LogAll || l == LogFailed && action != policy.Delivered {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// line is everything there is to say of an attempt, in one line. No secret is in it: neither query of the endpoint, nor
// bodies, and the error is redacted as it is stored. The names are those of postrider.delivery_attempts, with one
// difference: its column error is error_text here, and error is the original error.
func (a *attempt) line(r *delivery.Result, met endpoint.Answer, late bool) []slog.Attr {
	line := make([]slog.Attr, 0, 32)
	line = append(line, slog.String("topic", a.sub.Topic), slog.String("subscription", a.sub.Name))
	line = append(line, a.sent(r)...)
	line = append(line, slog.Int("number", r.Number), slog.Int("reruns", r.Reruns), slog.Bool("late", late),
		slog.String("endpoint", a.sub.EndpointBaseURL),
		slog.String("outcome", string(r.Outcome)), slog.Int("status", r.Status))
	if r.Error != "" {
		line = append(line, slog.String("error", safe(a.originalText(r, met))), slog.String("error_text", safe(r.Error)))
	}
	line = append(line, slog.Float64("duration_ms", milliseconds(r.Duration)))
	for _, phase := range []struct {
		name string
		took time.Duration
	}{
		{"dns_ms", r.Timings.DNS},
		{"connect_ms", r.Timings.Connect},
		{"tls_ms", r.Timings.TLS},
		{"first_byte_ms", r.Timings.FirstByte},
	} {
		if phase.took > 0 {
			line = append(line, slog.Float64(phase.name, milliseconds(phase.took)))
		}
	}
	line = append(line, slog.String("retry_policy", r.RetryPolicy), slog.String("verdict", string(r.Verdict.Action)))
	if r.Verdict.Reason != "" {
		line = append(line, slog.String("reason", string(r.Verdict.Reason)))
	}
	if !r.Verdict.At.IsZero() {
		line = append(line, slog.Time("next_attempt_at", r.Verdict.At.UTC()))
	}
	return append(line, slog.String("why", safe(r.Verdict.Why.String())), slog.String("node", a.engine.parts.Node))
}

// originalText is the original error of an attempt without secrets.
func (a *attempt) originalText(r *delivery.Result, met endpoint.Answer) string {
	if met.Cause == nil {
		return r.Error
	}
	text := met.Cause.Error()
	if secrets := a.secrets(r); secrets != nil {
		text = secrets.Redact(text)
	}
	return withoutQueries(text)
}

// sent names what was sent: a delivery with its event, or a batch with its first few.
func (a *attempt) sent(r *delivery.Result) []slog.Attr {
	first := &a.work.Members[0].Event
	if r.BatchID == 0 {
		return []slog.Attr{
			slog.Int64("delivery_id", r.DeliveryID), slog.String("event_id", safe(first.ID)),
			slog.String("event_type", safe(first.Type)),
		}
	}
	ids := make([]string, min(len(a.work.Members), loggedEvents))
	for i := range ids {
		ids[i] = safe(a.work.Members[i].Event.ID)
	}
	return []slog.Attr{
		slog.Int64("batch_id", r.BatchID), slog.Int("events", len(a.work.Members)), slog.Any("event_ids", ids),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// safe makes a stranger's text fit for a log that people read in a terminal: no control characters, none that turn the
// writing around, and no more than 256 characters.
func safe(text string) string {
	const most = 256
	n := 0
	clean := strings.Map(func(r rune) rune {
		switch n++; {
		case n > most:
			return -1
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, text)
	if n > most {
		return clean + "…"
	}
	return clean
}
