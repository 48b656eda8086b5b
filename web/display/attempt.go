package display

import (
	"fmt"
	"time"

	"postrider/query"
)

// Phase is a part of an attempt's duration, as a bar in percent of the longest attempt that is shown.
type Phase struct {
	Name, Class, Text, X, Width string
}

// PhasesOf divides the duration of an attempt. On a reused connection there is no DNS, no connect and no TLS.
func PhasesOf(a query.AttemptLine, longest float64) []Phase {
	if longest <= 0 {
		return nil
	}
	parts := []struct {
		name, class string
		ms          *float64
	}{{"DNS", "dns", a.DNSMs}, {"connect", "connect", a.ConnectMs}, {"TLS", "tls", a.TLSMs}}
	var phases []Phase
	from := 0.0
	add := func(name, class string, ms float64) {
		phases = append(phases, Phase{
			Name: name, Class: "phase-" + class, Text: Milliseconds(ms),
			X: fmt.Sprintf("%.3f%%", 100*from/longest), Width: fmt.Sprintf("%.3f%%", 100*ms/longest),
		})
		from += ms
	}
	for _, part := range parts {
		if part.ms != nil {
			add(part.name, part.class, *part.ms)
		}
	}
	if a.FirstByteMs != nil {
		add("first byte", "wait", *a.FirstByteMs)
		if rest := a.DurationMs - from; rest > 0 {
			add("answer", "read", rest)
		}
	} else if rest := a.DurationMs - from; rest > 0 {
		add("no answer", "none", rest)
	}
	return phases
}

// Longest is the duration of the longest of some attempts in milliseconds.
func Longest(history []query.AttemptLine) (longest float64) {
	for i := range history {
		longest = max(longest, history[i].DurationMs)
	}
	return longest
}

// longWait is from when on the wait of a due attempt is shown.
const longWait = 5 * time.Second

// Waited is how long an attempt waited after it was due; "" if not for long.
func Waited(a query.AttemptLine) string {
	if a.DueAt == nil || a.StartedAt.Sub(*a.DueAt) <= longWait {
		return ""
	}
	return Span(a.StartedAt.Sub(*a.DueAt))
}

// VerdictText says what the policy decided after an attempt.
func VerdictText(a query.AttemptLine) string {
	switch a.Verdict {
	case "deliver":
		if a.Late {
			return "late, and counted as delivered: the queued retry was canceled"
		}
		return "delivered"
	case "retry":
		return "another attempt"
	case "dead_letter":
		return "given up: it became a dead letter"
	case "drop":
		return "given up: it was dropped"
	case "note":
		return "late: it changed nothing"
	default:
		return a.Verdict
	}
}
