package web

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
	"postrider/web/site"
)

// deadLettersView is what dead-letters.html shows.
type deadLettersView struct {
	site.List[query.DeadLetter]
	Matching query.DeadLetterFilter
	Total    int64
	Partly   bool // only the newest dead letters were searched
	Facets   []facetGroup
	// Redeliver and Purge are the pages of the bulk operations; "" if they do not know the filter.
	Redeliver, Purge string
}

type facetGroup struct {
	Name   string
	Shares []share
	All    string // the page without this filter; "" = it has none
}

// facetNames are in the order of the questions: why, with which result, to which event subscription, when.
var facetNames = []struct{ facet, title string }{
	{"reason", "Reason"},
	{"outcome", "Outcome"},
	{"status", "Status"},
	{"subscription", "Event subscription"},
	{"day", "Day (UTC)"},
}

// deadLetterQuery reads the filter of dead letters.
func deadLetterQuery(f *display.Filter) (d query.DeadLetterQuery) {
	given := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	topic, subscription := owner(f)
	d.Topic, d.Subscription = given(topic), given(subscription)
	d.Reason = given(f.Name("", "reason", "reason = ?"))
	d.LastOutcome = given(f.Name("", "outcome", "last_outcome = ?"))
	if n := f.Number("", "status", "coalesce(last_status, 0) = ?"); n != nil && *n == 0 {
		d.WithoutResponse = true
	} else if n != nil {
		d.LastStatus = new(int(min(*n, 999)))
	}
	d.EventID = given(f.Text("Event id", "eventId", "event_id = ?"))
	d.EventType = given(f.Text("Event type", "eventType", "event_type = ?"))
	d.DeadLetteredFrom = f.Time("From (UTC)", "from", "dead_lettered_at >= ?")
	d.DeadLetteredUntil = f.Time("To (UTC)", "to", "dead_lettered_at < ?")
	return d
}

func (p *pages) deadLetters(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	filter := deadLetterQuery(f)
	f.View, f.Order = "dead_letters", "dead_lettered_at desc, dead_letter_id desc"
	var found *query.DeadLetterPage
	read := func(ctx context.Context, q query.DeadLetterQuery, t query.Turn[query.DeadLetterPlace]) (
		_ query.SearchedPage[query.DeadLetter, query.DeadLetterPlace], err error,
	) {
		found, err = p.parts.Reader.ReadDeadLetters(ctx, q, t)
		return found.SearchedPage, err
	}
	list, err := site.ListOf(ctx, c, "dead letter", f, filter, read, (*query.DeadLetter).Place)
	if err != nil {
		return err
	}
	view := deadLettersView{
		List: list, Matching: filter.DeadLetterFilter, Total: found.Total, Partly: found.Partly,
		Facets: facetsOf(c, found.Facets),
	}
	if !filter.WithoutResponse {
		view.Redeliver = display.SameFilter(c, "/ui/dead-letters/redeliver", "before", "", "after", "")
		view.Purge = display.SameFilter(c, "/ui/dead-letters/purge", "before", "", "after", "")
	}
	return p.Show(c, "dead-letters", "Dead letters", true, view)
}

func facetsOf(c echo.Context, facets map[string][]query.Counted) []facetGroup {
	var groups []facetGroup
	for _, kind := range facetNames {
		href := func(value string) string {
			return display.With(c, append([]string{"before", "", "after", ""}, facetFilter(kind.facet, value)...)...)
		}
		group := facetGroup{Name: kind.title, Shares: sharesOf(facets[kind.facet], href)}
		for i := range group.Shares {
			s := &group.Shares[i]
			if s.Here = facetHere(c, facetFilter(kind.facet, s.Name)); s.Here {
				group.All = href("")
			}
			s.Name = facetText(kind.facet, s.Name)
		}
		groups = append(groups, group)
	}
	return groups
}

// facetFilter is the filter for a facet's value: parameter, value, parameter, value. "" removes it.
func facetFilter(facet, value string) []string {
	switch facet {
	case "subscription":
		topic, name, _ := strings.Cut(value, "/")
		return []string{"subscription", name, "topic", topic}
	case "day":
		next := ""
		if day, err := time.Parse(time.DateOnly, value); err == nil {
			next = day.AddDate(0, 0, 1).Format(time.DateOnly)
		}
		return []string{"from", value, "to", next}
	default:
		return []string{facet, value}
	}
}

// facetHere reports whether the page has this filter.
func facetHere(c echo.Context, filter []string) bool {
	here := filter[1] != ""
	for i := 0; i < len(filter); i += 2 {
		here = here && c.QueryParam(filter[i]) == filter[i+1]
	}
	return here
}

func facetText(facet, value string) string {
	n, err := strconv.Atoi(value)
	switch {
	case facet == "status" && value == "0":
		return "no answer"
	case facet == "status" && err == nil:
		return display.StatusText(n)
	default:
		return cmp.Or(value, "not attempted")
	}
}

// deadLetterView is what dead-letter.html shows.
type deadLetterView struct {
	query.DeadLetterRow
	Steps []step
	SQL   string
	Form  url.Values // as it was typed
}

// step is a moment in the life of a delivery.
type step struct {
	At   time.Time
	Text string
}

func (p *pages) deadLetter(ctx context.Context, c echo.Context) error {
	view, err := p.readDeadLetter(ctx, c)
	if err != nil {
		return err
	}
	return p.Show(c, "dead-letter", "Dead letter", true, view)
}

// purging is the page that confirms the purge of a dead letter.
func (p *pages) purging(ctx context.Context, c echo.Context) error {
	view, err := p.readDeadLetter(ctx, c)
	if err != nil {
		return err
	}
	return p.Show(c, "dead-letter-purge", "Purge this dead letter?", false, view,
		site.Link{Href: deadLetterPath(view.DeadLetterID), Text: "Dead letter"})
}

func (p *pages) readDeadLetter(ctx context.Context, c echo.Context) (view deadLetterView, err error) {
	id, err := uuidParam(c)
	if err != nil {
		return view, err
	}
	d, err := p.parts.Reader.ReadDeadLetter(ctx, id)
	if err != nil {
		return view, err
	}
	return deadLetterView{
		DeadLetterRow: *d, Steps: deadLetterSteps(&d.DeadLetter), Form: site.Typed(c),
		SQL: "select * from postrider.dead_letters where dead_letter_id = " + display.QuoteSQL(id.String()),
	}, nil
}

// deadLetterSteps are the moments that are known of a dead letter, in their order.
func deadLetterSteps(d *query.DeadLetter) []step {
	steps := []step{{d.PublishedAt, "published"}}
	if !d.TimeToLiveSince.Equal(d.PublishedAt) {
		steps = append(steps, step{d.TimeToLiveSince, "its time to live began"})
	}
	if d.FirstAttemptAt != nil {
		steps = append(steps, step{*d.FirstAttemptAt, "first attempt"})
	}
	if d.LastAttemptAt != nil && d.Attempts > 1 {
		steps = append(steps, step{*d.LastAttemptAt, fmt.Sprintf("attempt %d, the last", d.Attempts)})
	}
	steps = append(steps, step{d.DeadLetteredAt, "dead-lettered"})
	if d.RedeliveredAt != nil {
		steps = append(steps, step{*d.RedeliveredAt, "redelivered"})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.At.Compare(b.At) })
	return steps
}

func (p *pages) redeliverOne(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuidParam(c)
	if err != nil {
		return "", err
	}
	form, err := letterFormOf(c)
	if err != nil {
		return "", err
	}
	delivery, err := p.parts.Operator.Redeliver(ctx, id, form.to, c.FormValue("again") != "")
	return deliveryPath(delivery) + "?done=redelivered", err
}

func (p *pages) purgeOne(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuidParam(c)
	if err != nil {
		return "", err
	}
	purged, err := p.parts.Operator.Purge(ctx, id)
	if err == nil && !purged {
		err = postgres.ErrNotFound
	}
	return "/ui/dead-letters?done=purged", err
}

// letterForm is what the forms of dead letters have.
type letterForm struct {
	to          operator.Target
	rate        int   // per second; 0 = no limit
	redelivered *bool // which of the dead letters that match; nil = the default of the operation
}

// maxRate is more than any database can do: a larger rate is a mistake.
const maxRate = 1_000_000

func letterFormOf(c echo.Context) (form letterForm, err error) {
	if err := c.Request().ParseForm(); err != nil {
		return form, site.WrongForm("the form cannot be read.")
	}
	f := display.FilterOfForm(c.Request().PostForm)
	form.to = operator.Target{Subscription: f.Name("", "toSubscription", ""), Topic: f.Name("", "toTopic", "")}
	if which := f.OneOf("", "redelivered", "", []string{"true", "false"}, ""); which != "" {
		form.redelivered = new(which == "true")
	}
	rate := f.Number("", "rate", "")
	if f.Err != nil || rate != nil && (*rate < 1 || *rate > maxRate) {
		return form, site.WrongForm("the rate must be a whole number from 1 to 1,000,000, or empty, and names must be text.")
	}
	if rate != nil {
		form.rate = int(*rate)
	}
	return form, nil
}
