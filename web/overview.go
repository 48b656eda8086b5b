package web

import (
	"context"
	"net/url"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/query"
	"postrider/web/display"
)

type overviewView struct {
	*query.Overview
	// Published and Delivered are rates per second over the last five full minutes.
	Published, Delivered float64
	OldestIsLate         bool        // the oldest pending delivery is late
	Failing              []attention // the event subscriptions that are failing now
	Rows                 []attention
	Hidden               int // how many rows are left out
	Ranges               []display.RangeLink
	Charts               []display.Chart
	Reasons              []display.Share
	First                *firstSteps // nil unless the installation is new
}

// attentionRows is the number of rows that the overview shows.
const attentionRows = 8

func (p *pages) overview(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	r := display.RangeOf(f)
	if f.Err != nil {
		return f.Err
	}
	o, err := p.Parts.Reader.ReadOverview(ctx, r.Span, r.Step)
	if err != nil {
		return err
	}
	oldest := o.Current.OldestPendingSince
	view := overviewView{
		Overview: o, OldestIsLate: oldest != nil && p.Now().Sub(*oldest) > query.LateAge,
		Ranges: display.RangeLinks(c, r),
		Charts: []display.Chart{
			display.TrafficChart(r, display.PublishedSeries, o.Range.Minutes), display.OutcomeChart(r, o.Range),
			display.LatencyChart(r, o.Range.Minutes),
		},
		Reasons: display.SharesOf(o.Day.Reasons, func(name string) string { return "/ui/dead-letters?reason=" + name }),
	}
	view.Rows = needsAttention(o.Attention, o.Failing)
	for i := range view.Rows {
		if view.Rows[i].Problem != nil {
			view.Failing = append(view.Failing, view.Rows[i])
		}
	}
	view.Hidden = max(0, len(view.Rows)-attentionRows)
	view.Rows = view.Rows[:len(view.Rows)-view.Hidden]
	const recent = 5
	minutes := o.LastHour.Minutes
	for _, m := range minutes[max(0, len(minutes)-1-recent):max(0, len(minutes)-1)] {
		view.Published += float64(m.Published) / (60 * recent)
		view.Delivered += float64(m.Delivered) / (60 * recent)
	}
	if o.Day.Total.Published == 0 && o.Current.Pending == 0 {
		if view.First, err = p.firstSteps(ctx, c); err != nil {
			return err
		}
	}
	return p.Show(c, "overview", "Overview", true, view)
}

// firstSteps are the steps to the first delivery.
type firstSteps struct {
	Server                string // the server's address
	Topic                 string // "" without a topic
	Subscribed, Published bool
}

// firstSteps is nil if an event subscription exists and an event was published.
func (p *pages) firstSteps(ctx context.Context, c echo.Context) (*firstSteps, error) {
	topics, err := p.Parts.Reader.ReadTopics(ctx, "", query.Turn[string]{Limit: display.PageSize})
	if err != nil {
		return nil, err
	}
	first := &firstSteps{Server: serverAddress(c)}
	for _, line := range topics.Rows {
		if line.Topic == catalog.SystemTopic {
			continue
		}
		if first.Topic == "" || line.Subscriptions > 0 && !first.Subscribed {
			first.Topic = line.Topic
		}
		first.Subscribed = first.Subscribed || line.Subscriptions > 0
	}
	events, err := p.Parts.Reader.ReadEvents(ctx, query.EventFilter{}, query.Turn[uuid.UUID]{Limit: 1})
	if first.Published = len(events.Rows) > 0; err != nil || first.Subscribed && first.Published {
		return nil, err
	}
	return first, nil
}

// serverAddress is the server's address in the browser.
func serverAddress(c echo.Context) string {
	return (&url.URL{Scheme: c.Scheme(), Host: c.Request().Host}).String()
}
