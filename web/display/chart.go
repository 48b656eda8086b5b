package display

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/query"
	"postrider/policy"
)

// Chart is a table with a row for each step of a range. The page's script draws it; without JavaScript the page shows
// the table.
type Chart struct {
	Title string
	Form  string // "lines", or "bars", which are stacked
	Unit  string // of the numbers: "ms", or that of a count, such as "/min"
	// Series have the names of their colors in style.css.
	Series []series
	Rows   []chartRow // the oldest first
}

type series struct{ Name, Color string }

type chartRow struct {
	Unix           int64
	Machine, Label string
	Values         []string // "" = nothing was measured
}

// chartRange is a span of time that charts show in 60 to 100 steps: a bar needs a few pixels.
type chartRange struct {
	Name, Text string
	Span, Step time.Duration
	Label      string // how a step's beginning is written
	Each       string // the name of a step
	Unit       string // of a count in a step
}

var chartRanges = []chartRange{
	{"1h", "1 h", time.Hour, time.Minute, "15:04", "minute, last hour", "/min"},
	{"24h", "24 h", 24 * time.Hour, 15 * time.Minute, "15:04", "quarter of an hour, last 24 hours", "/15 min"},
	{"7d", "7 d", 7 * 24 * time.Hour, 2 * time.Hour, "Mon 2 Jan 15:04", "two hours, last 7 days", "/2 h"},
}

// RangeOf reads the range of a page's charts; the first if the address names none.
func RangeOf(f *Filter) *chartRange {
	name := f.OneOf("", "range", "", []string{"1h", "24h", "7d"}, "1h")
	i := slices.IndexFunc(chartRanges, func(r chartRange) bool { return r.Name == name })
	return &chartRanges[i]
}

// RangeLink is one of the ranges to choose from.
type RangeLink struct {
	Text, Href string
	Here       bool
}

// RangeLinks are the ranges to choose from, with the current one marked.
func RangeLinks(c echo.Context, here *chartRange) []RangeLink {
	links := make([]RangeLink, len(chartRanges))
	for i, r := range chartRanges {
		value := r.Name
		if i == 0 {
			value = "" // the page's own
		}
		links[i] = RangeLink{r.Text, With(c, "range", value), r.Name == here.Name}
	}
	return links
}

// The first series of a traffic chart: the published events of a topic, or the deliveries of an event subscription.
const (
	PublishedSeries = "Published"
	MatchedSeries   = "Matched"
)

// rowsOf returns a row for each step except the last, which has not ended and would look like a drop.
func (r *chartRange) rowsOf(steps []query.Minute, values func(m *query.Minute) []string) (rows []chartRow) {
	for i := range steps[:max(0, len(steps)-1)] {
		at := steps[i].At.UTC()
		rows = append(rows,
			chartRow{Unix: at.Unix(), Machine: at.Format(time.RFC3339), Label: at.Format(r.Label), Values: values(&steps[i])})
	}
	return rows
}

// TrafficChart shows new events or deliveries, deliveries that succeeded, and failures.
func TrafficChart(r *chartRange, first string, steps []query.Minute) Chart {
	return Chart{
		Title: "Traffic, per " + r.Each, Form: "lines", Unit: r.Unit,
		Series: []series{
			{first, "calm-mark"}, {"Delivered", "accent"}, {"Failed attempts", "waiting-mark"}, {"Dead letters", "bad-mark"},
		},
		Rows: r.rowsOf(steps, func(m *query.Minute) []string {
			count := m.Published
			if first == MatchedSeries {
				count = m.Matched
			}
			return numbers(count, m.Delivered, m.Failures, m.DeadLetters)
		}),
	}
}

// RateChart shows deliveries that succeeded, and what a limit in deliveries per second allows. Of lines, the area below
// the second one is filled.
func RateChart(r *chartRange, perSecond float64, steps []query.Minute) Chart {
	limit := strconv.FormatFloat(perSecond*r.Step.Seconds(), 'f', 0, 64)
	return Chart{
		Title: "Limit and delivered, per " + r.Each, Form: "lines", Unit: r.Unit,
		Series: []series{{"Limit", "bad-mark"}, {"Delivered", "accent"}},
		Rows: r.rowsOf(steps, func(m *query.Minute) []string {
			return append([]string{limit}, numbers(m.Delivered)...)
		}),
	}
}

func numbers(list ...int64) []string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return texts
}

// outcomeColors are the colors of the most frequent failures; the others share the last one.
var outcomeColors = []string{"bad-mark", "waiting-mark", "series-violet", "series-blue", "calm-mark"}

// OutcomeChart shows attempts by outcome: successes at the bottom, failures stacked on them.
func OutcomeChart(r *chartRange, counts *query.Counts) Chart {
	ch := Chart{
		Title: "Outcomes, per " + r.Each, Form: "bars", Unit: r.Unit, Series: []series{{"Delivered", "accent"}},
	}
	var failures []string
	for _, outcome := range counts.Outcomes {
		if !policy.Outcome(outcome.Name).Success() {
			failures = append(failures, outcome.Name)
		}
	}
	own := failures
	if len(failures) > len(outcomeColors) {
		own = failures[:len(outcomeColors)-1]
	}
	for i, name := range own {
		ch.Series = append(ch.Series, series{name, outcomeColors[i]})
	}
	if len(own) < len(failures) {
		ch.Series = append(ch.Series, series{"other failures", outcomeColors[len(outcomeColors)-1]})
	}
	ch.Rows = r.rowsOf(counts.Minutes, func(m *query.Minute) []string {
		list := []int64{m.Outcomes[string(policy.OutcomeDelivered)] + m.Outcomes[string(policy.OutcomeAcknowledged)]}
		rest := m.Failures
		for _, name := range own {
			list, rest = append(list, m.Outcomes[name]), rest-m.Outcomes[name]
		}
		if len(own) < len(failures) {
			list = append(list, rest)
		}
		return numbers(list...)
	})
	return ch
}

// LatencyChart shows the duration of attempts, with gaps in steps without attempts.
func LatencyChart(r *chartRange, steps []query.Minute) Chart {
	return Chart{
		Title: "Attempt duration, per " + r.Each, Form: "lines", Unit: "ms",
		Series: []series{{"Median", "accent"}, {"95 % within", "waiting-mark"}},
		Rows: r.rowsOf(steps, func(m *query.Minute) []string {
			half, ok := m.Latency.Quantile(0.5)
			most, _ := m.Latency.Quantile(0.95)
			if !ok {
				return []string{"", ""}
			}
			return []string{strconv.FormatFloat(half, 'f', 1, 64), strconv.FormatFloat(most, 'f', 1, 64)}
		}),
	}
}

// Spark is a small bar chart as SVG: successes with failures stacked on them.
type Spark struct {
	Bars []bar
	Text string // for screen readers
}

// bar is one step of a Spark, in units of the drawing.
type bar struct{ X, GoodY, Good, BadY, Bad int }

const (
	sparkHeight = 20
	sparkStep   = 5
)

// SparkOf is a small chart of successes and failures.
func SparkOf(good, bad []int64) Spark {
	var most, sumGood, sumBad int64 = 1, 0, 0
	for i := range good {
		most = max(most, good[i]+at(bad, i))
	}
	s := Spark{}
	for i := range good {
		b := bar{X: i * sparkStep, Good: barHeight(good[i], most), Bad: barHeight(at(bad, i), most)}
		b.Good = min(b.Good, sparkHeight-b.Bad)
		b.GoodY = sparkHeight - b.Good
		b.BadY = b.GoodY - b.Bad
		s.Bars = append(s.Bars, b)
		sumGood, sumBad = sumGood+good[i], sumBad+at(bad, i)
	}
	s.Text = Grouped(sumGood)
	if bad != nil {
		s.Text = fmt.Sprintf("%s succeeded, %s failed", s.Text, Grouped(sumBad))
	}
	return s
}

// FailedSparkOf is a small chart of failures.
func FailedSparkOf(failed []int64) Spark {
	s := SparkOf(make([]int64, len(failed)), failed)
	_, s.Text, _ = strings.Cut(s.Text, ", ")
	return s
}

func at(list []int64, i int) int64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// barHeight is at least 2 unless n is 0, so that one failure among thousands is visible.
func barHeight(n, most int64) int {
	if n == 0 {
		return 0
	}
	return max(2, int(n*(sparkHeight-2)/most))
}

// Phase is a part of an attempt's duration, as a bar in percent of the longest attempt that is shown.
type Phase struct {
	Name, Class, Text, X, Width string
}

// PhasesOf divides the duration of an attempt. A reused connection has no phases for DNS, connect and TLS.
func PhasesOf(a query.AttemptLine, longest float64) []Phase {
	if longest <= 0 {
		return nil
	}
	var phases []Phase
	from := 0.0
	add := func(name, class string, ms *float64) {
		if ms != nil {
			phases = append(phases, Phase{
				Name: name, Class: "phase-" + class, Text: Milliseconds(*ms),
				X: fmt.Sprintf("%.3f%%", 100*from/longest), Width: fmt.Sprintf("%.3f%%", 100**ms/longest),
			})
			from += *ms
		}
	}
	add("DNS", "dns", a.DNSMs)
	add("connect", "connect", a.ConnectMs)
	add("TLS", "tls", a.TLSMs)
	add("first byte", "wait", a.FirstByteMs)
	switch rest := a.DurationMs - from; {
	case rest <= 0:
	case a.FirstByteMs != nil || a.Status != nil: // brokers have no times of their own
		add("response", "read", &rest)
	default:
		add("no response", "none", &rest)
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

// longWait is the shortest wait of a due attempt that is shown.
const longWait = 5 * time.Second

// Waited is how long an attempt waited after it was due; "" up to longWait.
func Waited(a query.AttemptLine) string {
	if a.DueAt == nil || a.StartedAt.Sub(*a.DueAt) <= longWait {
		return ""
	}
	return Span(a.StartedAt.Sub(*a.DueAt))
}

// VerdictText is what the retry policy decided after an attempt.
func VerdictText(a query.AttemptLine) string {
	switch a.Verdict {
	case "deliver":
		if a.Late {
			return "delivered by a late response; the queued retry was canceled"
		}
		return "delivered"
	case "retry":
		return "another attempt"
	case "dead_letter":
		return "dead letter"
	case "drop":
		return "dropped"
	case "note":
		return "late response, ignored"
	default:
		return a.Verdict
	}
}
