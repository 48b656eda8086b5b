package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"postrider/internal/event"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/policy"
)

// LogAttempts selects the attempts that are logged.
type LogAttempts string

// A line takes 10 microseconds and 600 bytes: for 5,000 attempts a second, 5 % of a core and 250 GB a day, to repeat
// postrider.delivery_attempts. So the default is LogFailed.
const (
	LogNone   LogAttempts = "none"
	LogFailed LogAttempts = "failed" // attempts without success, up to failedLines a second
	LogAll    LogAttempts = "all"
)

const failedLines = 100

// logLimit bounds the lines per second.
type logLimit struct {
	mu            sync.Mutex
	second        time.Time
	used, leftOut int
}

// take reports whether a line may be logged, and how many lines were left out before it.
func (l *logLimit) take(now time.Time) (granted bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := now.Truncate(time.Second); !second.Equal(l.second) {
		l.second, l.used = second, 0
	}
	if l.used++; l.used > failedLines {
		l.leftOut++
		return false, 0
	}
	leftOut, l.leftOut = l.leftOut, 0
	return true, leftOut
}

// AttemptReport describes an attempt for the output of dev and for traces.
type AttemptReport struct {
	Topic, Subscription string
	// EventID and EventType are those of the batch's first event. Events is their number.
	EventID, EventType string
	Events             int
	Number             int
	Result             policy.Result
	Duration           time.Duration
	Verdict            policy.Verdict
	Now                time.Time
	// Outcome is the policy's outcome of Result. Endpoint has no query. Trace is that of the publish.
	Outcome  policy.Outcome
	Endpoint string
	Trace    event.Trace
}

// report logs and reports a recorded attempt, or the late response that ended its delivery.
func (a *attempt) report(
	r *delivery.Request, verdict policy.Verdict, resp endpoint.Response, now time.Time, late bool,
) {
	ctx := context.Background()
	if level := a.options.LogAttempts.level(verdict.Action); a.log.Enabled(ctx, level) {
		granted, leftOut := true, 0
		if a.options.LogAttempts == LogFailed && !a.log.Enabled(ctx, slog.LevelDebug) {
			granted, leftOut = a.logLimit.take(now)
		}
		if granted {
			line := a.line(r, verdict, resp, late)
			if leftOut > 0 {
				line = append(line, slog.Int("left_out", leftOut))
			}
			a.log.LogAttrs(ctx, level, "delivery attempted", line...)
		}
	}
	if a.options.OnAttempt != nil {
		a.options.OnAttempt(AttemptReport{
			Topic: a.sub.Topic, Subscription: a.sub.Name, Events: len(a.work.Members),
			EventID: a.work.Members[0].Event.ID, EventType: a.work.Members[0].Event.Type,
			Number: r.Number, Result: resp.Result, Duration: resp.Duration, Verdict: verdict, Now: now,
			Outcome: r.Outcome, Endpoint: a.sub.EndpointBaseURL, Trace: a.trace,
		})
	}
}

func (l LogAttempts) level(action policy.VerdictAction) slog.Level {
	if l == LogAll || l == LogFailed && action != policy.Delivered {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// line is the log line of an attempt, without secrets: no query of the endpoint, no bodies, and a redacted error. The
// names are those of postrider.delivery_attempts, except that its column error is error_text, and error is the original
// error.
func (a *attempt) line(
	r *delivery.Request, verdict policy.Verdict, resp endpoint.Response, late bool,
) []slog.Attr {
	line := make([]slog.Attr, 0, 32)
	line = append(line, slog.String("topic", a.sub.Topic), slog.String("subscription", a.sub.Name))
	if first := &a.work.Members[0].Event; a.work.BatchID == 0 {
		line = append(line, slog.Int64("delivery_id", a.args.Delivery), slog.String("event_id", safe(first.ID)),
			slog.String("event_type", safe(first.Type)))
	} else {
		ids := make([]string, min(len(a.work.Members), loggedEvents))
		for i := range ids {
			ids[i] = safe(a.work.Members[i].Event.ID)
		}
		line = append(line, slog.Int64("batch_id", a.work.BatchID), slog.Int("events", len(a.work.Members)),
			slog.Any("event_ids", ids))
	}
	line = append(line, slog.Int("number", r.Number), slog.Int("reruns", a.reruns), slog.Bool("late", late),
		slog.String("endpoint", a.sub.EndpointBaseURL),
		slog.String("outcome", string(r.Outcome)), slog.Int("status", r.Status))
	if resp.ErrorText != "" {
		text := a.secrets(resp).Redact(resp.ErrorText)
		original := text
		if resp.Cause != nil {
			original = withoutQueries(a.secrets(resp).Redact(resp.Cause.Error()))
		}
		line = append(line, slog.String("error", safe(original)), slog.String("error_text", safe(text)))
	}
	line = append(line, slog.Float64("duration_ms", milliseconds(r.Duration)))
	phases := [...]time.Duration{r.Timings.DNS, r.Timings.Connect, r.Timings.TLS, r.Timings.FirstByte}
	for i, name := range [...]string{"dns_ms", "connect_ms", "tls_ms", "first_byte_ms"} {
		if phases[i] > 0 {
			line = append(line, slog.Float64(name, milliseconds(phases[i])))
		}
	}
	line = append(line, slog.String("retry_policy", a.rules.Policy.Name), slog.String("verdict", string(verdict.Action)))
	if verdict.Reason != "" {
		line = append(line, slog.String("reason", string(verdict.Reason)))
	}
	if !verdict.At.IsZero() {
		line = append(line, slog.Time("next_attempt_at", verdict.At.UTC()))
	}
	return append(line, slog.String("why", safe(verdict.Why.String())), slog.String("node", a.node))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// safe makes a publisher's or endpoint's text safe for a log that is shown in a terminal: only printable characters, at
// most 256.
func safe(text string) string {
	const most = 256
	n := 0
	clean := strings.Map(func(r rune) rune {
		n++
		if n > most {
			return -1
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if n > most {
		return clean + "…"
	}
	return clean
}
