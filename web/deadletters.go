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

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

type deadLettersView struct {
	site.List[query.DeadLetter]
	Matching query.DeadLetterFilter
	Total    int64
	Partly   bool // only the newest dead letters were searched
	Facets   []facetGroup
	// Redeliver, Repair, Resolve and Purge are the pages of the bulk operations.
	Redeliver, Repair, Resolve, Purge string
	Search                            contentSearch
}

type facetGroup struct {
	Name   string
	Shares []display.Share
	All    string // the page without this filter; "" if it has none
}

var facetNames = []struct{ facet, title string }{
	{"reason", "Reason"},
	{"outcome", "Outcome"},
	{"status", "Status"},
	{"subscription", "Event subscription"},
	{"day", "Day (UTC)"},
}

// deadLetterFilter reads the filter of dead letters. *query.SearchError: the search is invalid.
func (p *pages) deadLetterFilter(f *display.Filter) (d query.DeadLetterFilter, wrong error) {
	f.Read(&d, p.Now())
	d.Match, wrong = query.ParseSearch(d.Search)
	d.Search = ""
	return d, wrong
}

func (p *pages) deadLetters(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	filter, wrong := p.deadLetterFilter(f)
	f.View, f.Order = "dead_letters", "dead_lettered_at desc, dead_letter_id desc"
	begun, scanned := begunSearch(f)
	var found *query.DeadLetterPage
	read := func(ctx context.Context, q query.DeadLetterFilter, t query.Turn[query.DeadLetterPlace]) (
		_ query.SearchedPage[query.DeadLetter, query.DeadLetterPlace], err error,
	) {
		if wrong != nil {
			return query.SearchedPage[query.DeadLetter, query.DeadLetterPlace]{}, wrong
		}
		found, err = p.Parts.Reader.ReadDeadLetters(ctx, &q, t, begun)
		return found.SearchedPage, err
	}
	list, err := site.ListOf(ctx, c, "dead letter", f, filter, read, (*query.DeadLetter).Place)
	if problem := searchProblem(err); problem != "" {
		return p.Show(c, "dead-letters", "Dead letters", false, deadLettersView{
			List: site.List[query.DeadLetter]{Noun: "dead letter", Filter: f}, Search: contentSearch{Problem: problem},
		})
	} else if err != nil {
		return err
	}
	if found.Condition != nil {
		f.Where(*found.Condition)
	}
	view := deadLettersView{
		List: list, Matching: filter, Total: found.Total, Partly: found.Partly, Facets: facetsOf(c, found.Facets),
		Redeliver: display.SameFilter(c, "/ui/dead-letters/redeliver", notOfFilter...),
		Repair:    display.SameFilter(c, "/ui/dead-letters/repair", notOfFilter...),
		Resolve:   display.SameFilter(c, "/ui/dead-letters/resolve", notOfFilter...),
		Purge:     display.SameFilter(c, "/ui/dead-letters/purge", notOfFilter...),
	}
	if filter.Match != nil {
		view.Search = continued(c, found, scanned+found.Scanned)
		view.Paging.Further = ""
	}
	view.Selectable(c, checkedDeadLetters)
	return p.Show(c, "dead-letters", "Dead letters", filter.Match == nil, view)
}

func facetsOf(c echo.Context, facets map[string][]query.Counted) []facetGroup {
	var groups []facetGroup
	here := display.With(c, notOfPage...)
	for _, kind := range facetNames {
		href := func(value string) string {
			return display.With(c, slices.Concat(notOfPage, facetFilter(kind.facet, value))...)
		}
		group := facetGroup{Name: kind.title, Shares: display.SharesOf(facets[kind.facet], href)}
		for i := range group.Shares {
			s := &group.Shares[i]
			if s.Here = s.Name != "" && s.Href == here; s.Here {
				group.All = href("")
			}
			s.Name = facetText(kind.facet, s.Name)
		}
		groups = append(groups, group)
	}
	return groups
}

// facetFilter is the filter for a value of a facet: parameter, value, parameter, value. An empty value removes it.
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
		return []string{"from", value, "to", next, "within", ""}
	case "outcome", "status":
		return []string{"last" + strings.ToUpper(facet[:1]) + facet[1:], value}
	default:
		return []string{facet, value}
	}
}

func facetText(facet, value string) string {
	n, err := strconv.Atoi(value)
	switch {
	case facet == "status" && value == "0":
		return "no response"
	case facet == "status" && err == nil:
		return display.StatusText(n)
	default:
		return cmp.Or(value, "no outcome") // of letters without an attempt, and of files that name none
	}
}

type deadLetterView struct {
	query.DeadLetterRow
	Steps []step
	SQL   string
	Form  url.Values // the input of a rejected form
}

// step is a step in the life of a dead letter or a problem.
type step struct {
	At   *time.Time // nil if it is not known
	Text string
}

// inOrder are the known steps in their order.
func inOrder(steps ...step) []step {
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.At == nil })
	slices.SortStableFunc(steps, func(a, b step) int { return a.At.Compare(*b.At) })
	return steps
}

func (p *pages) deadLetter(ctx context.Context, c echo.Context, id uuid.UUID) error {
	view, err := p.readDeadLetter(ctx, c, id)
	if err != nil {
		return err
	}
	return p.Show(c, "dead-letter", "Dead letter", true, view)
}

// purging is the page that confirms the purge of a dead letter.
func (p *pages) purging(ctx context.Context, c echo.Context, id uuid.UUID) error {
	view, err := p.readDeadLetter(ctx, c, id)
	if err != nil {
		return err
	}
	return p.Show(c, "dead-letter-purge", "Purge dead letter", false, view,
		display.Link{Href: deadLetterPath(view.DeadLetterID), Text: "Dead letter"})
}

func (p *pages) readDeadLetter(ctx context.Context, c echo.Context, id uuid.UUID) (view deadLetterView, err error) {
	d, err := p.Parts.Reader.ReadDeadLetter(ctx, id)
	if err != nil {
		return view, err
	}
	return deadLetterView{
		DeadLetterRow: *d, Steps: deadLetterSteps(&d.DeadLetter), Form: site.Input(c),
		SQL: "select * from postrider.dead_letters where dead_letter_id = " + display.QuoteSQL(id.String()),
	}, nil
}

func deadLetterSteps(d *query.DeadLetter) []step {
	began, last, ended := &d.TimeToLiveSince, d.LastAttemptAt, "dead-lettered"
	if began.Equal(d.PublishedAt) {
		began = nil
	}
	if d.Attempts <= 1 && d.FirstAttemptAt != nil {
		last = nil
	}
	if d.ImportedFrom != nil {
		ended = "imported"
	}
	return inOrder(step{&d.PublishedAt, "published"}, step{began, "time to live began"},
		step{d.FirstAttemptAt, "first attempt"}, step{last, fmt.Sprintf("attempt %d (last)", d.Attempts)},
		step{&d.DeadLetteredAt, ended}, step{d.RedeliveredAt, "redelivered"}, step{d.ResolvedAt, "resolved"})
}

func (p *pages) redeliverOne(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	do, err := actionOf(c, operator.Redeliver)
	if err != nil {
		return "", err
	}
	delivery, err := p.Parts.Operator.Redeliver(ctx, id, do.To, do.Again)
	return deliveryPath(delivery) + "?done=redelivered", err
}

func (p *pages) resolveOne(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	return deadLetterPath(id) + "?done=resolved", p.Parts.Operator.Resolve(ctx, id, strings.TrimSpace(c.FormValue("note")))
}

func (p *pages) reopenOne(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	return deadLetterPath(id) + "?done=reopened", p.Parts.Operator.Reopen(ctx, id)
}

func (p *pages) purgeOne(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	purged, err := p.Parts.Operator.Purge(ctx, id)
	if err == nil && !purged {
		err = postgres.ErrNotFound
	}
	return "/ui/dead-letters?done=purged", err
}

func operationPath(id uuid.UUID) string { return "/ui/operations/" + id.String() }

// operationKinds are the titles of the kinds of operation.
var operationKinds = map[string]string{
	"redeliver": "Redeliver dead letters", "purge": "Purge dead letters", "redeliver_events": "Redeliver past events",
	"erase_subject": "Erase events of a subject", "retry": "Retry deliveries", "cancel": "Cancel deliveries",
	"repair": "Repair dead letters", "resolve": "Resolve dead letters",
}

// operationVerbs are what an operation of a kind did.
var operationVerbs = map[string]string{
	"redeliver": "Redelivered", "purge": "Purged", "redeliver_events": "Redelivered", "erase_subject": "Erased",
	"retry": "Retried", "cancel": "Canceled", "repair": "Repaired", "resolve": "Resolved",
}

func (p *pages) operations(ctx context.Context, c echo.Context) error {
	type place = query.DeadLetterPlace
	read := func(ctx context.Context, after place, limit int) ([]query.Operation, error) {
		if after == (place{}) {
			return p.Parts.Reader.Operations(ctx, nil, limit)
		}
		from := query.Operation{CreatedAt: after.DeadLetteredAt, OperationID: after.DeadLetterID}
		return p.Parts.Reader.Operations(ctx, &from, limit)
	}
	list, err := site.ForwardList(ctx, c, "operation", read, func(o *query.Operation) place {
		return place{DeadLetteredAt: o.CreatedAt, DeadLetterID: o.OperationID}
	})
	return p.ShowList(c, "operations", "Operations", list, err)
}

type operationView struct {
	query.Operation
	display.Progress
	All bool   // without filter
	Did string // what happened to those that are done
	// Redelivered are the states of its redeliveries, if it has any.
	Redelivered []display.Share
}

func (p *pages) operation(ctx context.Context, c echo.Context, id uuid.UUID) error {
	o, err := p.Parts.Reader.Operation(ctx, id)
	if err != nil {
		return err
	}
	view := operationView{Operation: *o, Progress: display.ProgressOf(*o, p.Now())}
	filter, err := o.Filter.Text()
	if o.DeliveryFilter != nil {
		filter, err = o.DeliveryFilter.Text()
	}
	if err != nil {
		return err
	}
	view.All, view.Did = filter == "{}", operationVerbs[o.Kind]
	if states := o.Outcomes; states != nil {
		view.Redelivered = []display.Share{
			{Name: "Pending", Href: "pending", Count: states.Pending},
			{Name: "Delivered", Href: "delivered", Count: states.Delivered},
			{Name: "Dead-lettered again", Href: "dead_lettered", Count: states.DeadLettered},
			{Name: "Dropped", Href: "dropped", Count: states.Dropped},
			{Name: "Canceled", Href: "canceled", Count: states.Canceled},
		}
	}
	return p.Show(c, "operation", operationKinds[o.Kind], view.Running, view)
}

func (p *pages) cancelOperation(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	done := "over"
	canceled, err := p.Parts.Operator.CancelOperation(ctx, id)
	if canceled {
		done = "stopped"
	}
	return operationPath(id) + "?done=" + done, err
}
