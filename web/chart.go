package web

import (
	"fmt"
	"strings"
	"time"

	"postrider/store"
)

// chart is a table of what happened by the minute or hour; the page's script draws it. Without JavaScript the table is what is there.
type chart struct {
	Title string
	First string     // what the first series counts
	Rows  []chartRow // the oldest first
}

type chartRow struct {
	Unix                                    int64
	Machine, Label                          string
	Count, Delivered, Failures, DeadLetters int64
}

// What the first series of a chart may be: events are published to topics, and owed to event subscriptions.
const (
	publishedSeries = "Published"
	owedSeries      = "Owed"
)

// chartOf leaves the last step out, which is not over: it would show a fall that is none.
func chartOf(title, first string, steps []store.Minute) chart {
	c := chart{Title: title, First: first}
	for _, m := range steps[:max(0, len(steps)-1)] {
		at := m.At.UTC()
		count := m.Published
		if first == owedSeries {
			count = m.Owed
		}
		c.Rows = append(c.Rows, chartRow{
			Unix: at.Unix(), Machine: at.Format(time.RFC3339), Label: at.Format("15:04"), Count: count,
			Delivered: m.Delivered, Failures: m.Failures, DeadLetters: m.DeadLetters,
		})
	}
	return c
}

// spark is a small chart of bars, as SVG: what succeeded, and on top of it what failed.
type spark struct {
	Bars []bar
	Text string // what a person hears who cannot see it
}

// bar is one of its steps, in units of the drawing: 3 wide, sparkHeight high.
type bar struct{ X, GoodY, Good, BadY, Bad int }

const (
	sparkHeight = 20
	sparkStep   = 5
)

func sparkOf(good, bad []int64) spark {
	var most, sumGood, sumBad int64 = 1, 0, 0
	for i := range good {
		most = max(most, good[i]+at(bad, i))
	}
	s := spark{}
	for i := range good {
		b := bar{X: i * sparkStep, Good: barHeight(good[i], most), Bad: barHeight(at(bad, i), most)}
		b.Good = min(b.Good, sparkHeight-b.Bad)
		b.GoodY = sparkHeight - b.Good
		b.BadY = b.GoodY - b.Bad
		s.Bars = append(s.Bars, b)
		sumGood, sumBad = sumGood+good[i], sumBad+at(bad, i)
	}
	s.Text = grouped(sumGood)
	if bad != nil {
		s.Text = fmt.Sprintf("%s succeeded, %s failed", s.Text, grouped(sumBad))
	}
	return s
}

func at(list []int64, i int) int64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// barHeight shows a single one among thousands, too.
func barHeight(n, most int64) int {
	if n == 0 {
		return 0
	}
	return max(2, int(n*(sparkHeight-2)/most))
}

// phase is a part of an attempt's time, as a bar: in percent of the longest attempt shown.
type phase struct {
	Name, Class, Text, X, Width string
}

// phasesOf splits an attempt's time as its row tells: those of a reused connection have no name resolution, no connect, no TLS.
func phasesOf(a *store.AttemptLine, longest float64) []phase {
	if longest <= 0 {
		return nil
	}
	parts := []struct {
		name, class string
		ms          *float64
	}{{"DNS", "dns", a.DNSMs}, {"connect", "connect", a.ConnectMs}, {"TLS", "tls", a.TLSMs}}
	var phases []phase
	from := 0.0
	add := func(name, class string, ms float64) {
		phases = append(phases, phase{
			Name: name, Class: "phase-" + class, Text: milliseconds(ms),
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
		add("first byte", "wait", max(0, *a.FirstByteMs-from))
		if rest := a.DurationMs - *a.FirstByteMs; rest > 0 {
			add("answer", "read", rest)
		}
	} else if rest := a.DurationMs - from; rest > 0 {
		add("no answer", "none", rest)
	}
	return phases
}

// phrase joins what is not empty.
func phrase(parts ...string) string {
	var said []string
	for _, part := range parts {
		if part != "" {
			said = append(said, part)
		}
	}
	return strings.Join(said, ", ")
}
