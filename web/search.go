package web

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/query"
	"postrider/web/display"
)

type searchView struct {
	Text  string
	Found []query.Found
	// Searched: events and dead letters were searched for the text as a subject or a value.
	Searched bool
	Ranges   []display.RangeLink
	Within   string
	Events   query.SearchedPage[query.EventLine, uuid.UUID]
	// Deliveries are those of the newest events.
	Deliveries  []query.DeliveryLine
	DeadLetters *query.DeadLetterPage
	// All, Further, ByContent and ByEvent are the next searches: of names and content, of a longer time, of dead letters,
	// and of deliveries.
	All, Further, ByContent, ByEvent string
}

// Nothing reports that a search has found nothing.
func (v *searchView) Nothing() bool {
	return len(v.Found) == 0 && len(v.Events.Rows) == 0 && (v.DeadLetters == nil || len(v.DeadLetters.Rows) == 0)
}

const (
	searchRows = 20 // of events and dead letters
	searchFew  = 5  // events whose deliveries are shown
)

// search finds pages by an id or a name: a single exact match opens its page. Otherwise it finds events and dead
// letters by their subject and the values in their data.
func (p *pages) search(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	view := searchView{Text: f.Name("", "q", "")}
	all := f.Check("", "content", "")
	within := f.Within(problemSpans, []string{"1h", "24h", "7d"}, "24h")
	if f.Err != nil {
		return f.Err
	}
	if view.Text == "" {
		return p.Show(c, "search", "Find", false, &view)
	}
	found, err := p.Parts.Reader.Find(ctx, view.Text)
	if err != nil {
		return err
	}
	if !all && (len(found) == 1 || len(found) > 1 && found[0].Exact && !found[1].Exact) {
		return c.Redirect(http.StatusSeeOther, foundPath(&found[0]))
	}
	view.Found, view.Ranges, view.Within = found, f.Ranges, display.Span(within)
	view.All = display.With(c, "content", "1")
	if all || len(found) == 0 {
		if err := p.searchContent(ctx, &view, p.Now().Add(-within)); err != nil {
			return err
		}
		if within < problemSpans["7d"] {
			view.Further = display.With(c, "within", "7d")
		}
	}
	return p.Show(c, "search", "Find "+view.Text, false, &view)
}

// searchContent finds events and dead letters with the text as subject or value since a time.
func (p *pages) searchContent(ctx context.Context, view *searchView, from time.Time) (err error) {
	view.Searched = true
	events := query.EventFilter{Data: view.Text, OrSubject: true, From: &from, States: true}
	view.Events, err = p.Parts.Reader.ReadEvents(ctx, events, query.Turn[uuid.UUID]{Limit: searchRows})
	if err != nil {
		return err
	}
	for _, e := range view.Events.Rows[:min(searchFew, len(view.Events.Rows))] {
		page, err := p.Parts.Reader.ReadDeliveries(ctx, query.DeliveryFilter{Event: e.SystemID.String(), Errors: true},
			query.Turn[query.DeliveryPlace]{Limit: searchRows})
		if err != nil {
			return err
		}
		view.Deliveries = append(view.Deliveries, page.Rows...)
	}
	search := valueSearch(view.Text)
	filter := query.DeadLetterFilter{DeadLetteredFrom: &from}
	if filter.Match, err = query.ParseSearch(search); err != nil { // too long a text
		return nil
	}
	view.DeadLetters, err = p.Parts.Reader.ReadDeadLetters(ctx, &filter,
		query.Turn[query.DeadLetterPlace]{Limit: searchRows}, nil)
	view.ByContent = "/ui/dead-letters?" + url.Values{"state": {"all"}, "search": {search}}.Encode()
	view.ByEvent = "/ui/deliveries?" + url.Values{"eventId": {view.Text}}.Encode()
	return err
}

// valueSearch is the search of dead letters with a text in their data.
func valueSearch(text string) string {
	return `data ~ "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(regexp.QuoteMeta(text)) + `"`
}

// foundPath is the page of what was found.
func foundPath(f *query.Found) string {
	switch f.Kind {
	case "topic":
		return "/ui/topics/" + f.ID
	case "event subscription":
		return subscriptionPath(*f.Topic, f.ID)
	case "delivery":
		return "/ui/deliveries/" + f.ID
	case "batch":
		return "/ui/batches/" + f.ID
	case "event":
		return "/ui/events/" + f.ID
	case "dead letter":
		return "/ui/dead-letters/" + f.ID
	default:
		return "/ui/operations/" + f.ID
	}
}
