package web

import (
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
)

// overviewView is what overview.html shows.
type overviewView struct {
	Tiles    []tile
	Ranges   []display.RangeLink
	Charts   []display.Chart
	Problems []problemRow
	Holds    []holdRow
	Reasons  []share
	First    []firstStep // of an installation that has published nothing yet; else none
}

// tile is a figure to look at.
type tile struct {
	Label, Figure, Unit, Note string
	Tone                      string // "" = nothing to say about it
	Href                      string
}

// share is a part of a whole, with the part's bar in percent.
type share struct {
	Name, Href string
	Count      int64
	Percent    int
	Here       bool // the page is filtered by it
}

type holdRow struct {
	query.HoldLine
	Href string
	Held string
}

// overviewProblems are how many groups of failures the overview shows.
const overviewProblems = 5

func (p *pages) overview(c echo.Context) error {
	q := display.QueryOf(c)
	r := display.RangeOf(q)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	o, err := p.parts.Reader.ReadOverview(ctx, r.Span, r.Step)
	if err != nil {
		return err
	}
	problems, err := p.parts.Reader.ReadProblems(ctx, "", time.Hour)
	if err != nil {
		return err
	}
	view := overviewView{
		Tiles: tilesOf(o, p.now()), Ranges: display.RangeLinks(c, r),
		Charts: []display.Chart{display.TrafficChart(r, display.PublishedSeries, o.Range.Minutes), display.OutcomeChart(r,
			o.Range), display.LatencyChart(r, o.Range.Minutes)},
		Problems: problemRows(problems[:min(len(problems), overviewProblems)]), Holds: holdRows(o.Holds),
		Reasons: sharesOf(o.Day.Reasons, func(name string) string { return "/ui/dead-letters?reason=" + name }),
	}
	if view.First, err = p.firstSteps(ctx, c, o); err != nil {
		return err
	}
	return p.show(c, "overview", "Overview", true, view)
}

// rateSpan is the time that rates are taken over: the last whole minutes.
const rateSpan = 5

func tilesOf(o *query.Overview, now time.Time) []tile {
	st := &o.Current
	recent := lastMinutes(o.LastHour.Minutes, rateSpan)
	hour, day := total(o.LastHour.Minutes), total(o.Day.Minutes)
	p50, p95 := "–", ""
	if st.LagP50 != nil && st.LagP95 != nil {
		p50, p95 = display.Milliseconds(*st.LagP50*1000), "95 % within "+display.Milliseconds(*st.LagP95*1000)
	}
	return []tile{
		{
			Label: "Published", Figure: display.PerSecond(float64(recent.Published) / (60 * rateSpan)), Unit: "/s",
			Note: display.Grouped(hour.Published) + " in the last hour", Href: "/ui/events",
		},
		{
			Label: "Delivered", Figure: display.PerSecond(float64(recent.Delivered) / (60 * rateSpan)), Unit: "/s",
			Note: display.Grouped(hour.Delivered) + " in the last hour", Href: "/ui/deliveries?state=delivered",
		},
		backlogTile(st),
		oldestTile(st, now),
		{Label: "Delivered at first attempt", Figure: display.Percent(day.FirstAttempt, day.Ended), Note: "of " +
			display.Grouped(day.Ended) + " that ended in 24 h"},
		finalTile(day, st.Pending),
		{Label: "Lag, median", Figure: p50, Note: p95},
		sweeperTile(st),
	}
}

// standingHeld is how far all deliveries on hold are counted.
const standingHeld = 20_000

func backlogTile(st *query.CurrentState) tile {
	t := tile{
		Label: "Backlog", Figure: display.Grouped(st.Pending), Note: "nothing on hold", Href: "/ui/deliveries?state=pending",
	}
	if st.Held > 0 {
		t.Note = atMost(int(st.Held), standingHeld) + " on hold"
	}
	return t
}

// oldTile is the age from which an unfinished delivery is worth a look: the built-in schedules have made four attempts
// by then.
const oldTile = 10 * time.Minute

func oldestTile(st *query.CurrentState, now time.Time) tile {
	t := tile{Label: "Oldest undelivered", Figure: "–", Note: "nothing is owed"}
	if st.OldestOwedSince == nil {
		return t
	}
	age := now.Sub(*st.OldestOwedSince)
	t.Figure, t.Note, t.Href = display.Span(max(age, 0)), "delivery "+strconv.FormatInt(*st.OldestID, 10),
		"/ui/deliveries/"+strconv.FormatInt(*st.OldestID, 10)
	if age > oldTile {
		t.Tone = "waiting"
	}
	return t
}

// finalTile is the share of what has ended: a pending delivery is neither a success nor a failure yet.
func finalTile(day query.Minute, pending int64) tile {
	t := tile{Label: "Delivered in the end", Figure: display.Percent(day.Delivered, day.Ended), Href: "/ui/dead-letters"}
	t.Note = "of " + display.Grouped(day.Ended) + " that ended in 24 h"
	if day.DeadLetters > 0 {
		t.Tone, t.Note = "bad", display.Plural(int(day.DeadLetters), "dead letter")+" in 24 h"
	}
	if pending > 0 {
		t.Note += "; " + display.Grouped(pending) + " pending"
	}
	return t
}

func sweeperTile(st *query.CurrentState) tile {
	t := tile{
		Label: "Sweeper finds", Figure: display.Grouped(st.SweeperFinds),
		Note: "nothing came apart; " + display.Plural(st.Nodes, "node"), Tone: "good",
	}
	if st.SweeperFinds > 0 {
		t.Tone, t.Note = "bad", "mended; it should be 0; "+display.Plural(st.Nodes, "node")
	}
	return t
}

// lastMinutes adds up the last n that are over.
func lastMinutes(minutes []query.Minute, n int) query.Minute {
	over := minutes[:max(0, len(minutes)-1)]
	return total(over[max(0, len(over)-n):])
}

func total(minutes []query.Minute) (sum query.Minute) {
	for _, m := range minutes {
		sum.Published += m.Published
		sum.Owed += m.Owed
		sum.Attempts += m.Attempts
		sum.Failures += m.Failures
		sum.Delivered += m.Delivered
		sum.FirstAttempt += m.FirstAttempt
		sum.DeadLetters += m.DeadLetters
		sum.Ended += m.Ended
	}
	return sum
}

func sharesOf(counts []query.Counted, href func(name string) string) []share {
	var most int64 = 1
	for _, c := range counts {
		most = max(most, c.Count)
	}
	shares := make([]share, len(counts))
	for i, c := range counts {
		shares[i] = share{Name: c.Name, Href: href(c.Name), Count: c.Count, Percent: max(1, int(100*c.Count/most))}
	}
	return shares
}

// heldLimit is how far the deliveries on hold of one event subscription are counted.
const heldLimit = 10_000

func holdRows(lines []query.HoldLine) []holdRow {
	rows := make([]holdRow, len(lines))
	for i, line := range lines {
		rows[i] = holdRow{
			HoldLine: line, Href: subscriptionPath(line.Topic, line.Subscription), Held: atMost(line.HeldDeliveries, heldLimit),
		}
	}
	return rows
}

// atMost says a number as far as it was counted: "10,000+" where counting ended there.
func atMost(n, limit int) string {
	if n >= limit {
		return display.Grouped(limit) + "+"
	}
	return display.Grouped(n)
}
