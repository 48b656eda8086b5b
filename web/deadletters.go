package web

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// deadLettersView is what dead-letters.html shows.
type deadLettersView struct {
	Filter   query.DeadLetterFilter
	Status   string
	From, To string
	Total    string
	Partly   bool // of the newest that were looked through alone
	Filtered bool
	Facets   []facetGroup
	Rows     []deadLetterRow
	Paging   display.Paging
	SQL      string
	Export   exportLine
	// The pages that do something to all that match; "" where the filter is none of theirs.
	Redeliver, Purge string
}

type facetGroup struct {
	Name   string
	Shares []share
	All    string // the page without this filter; "" = it has none
}

type deadLetterRow struct {
	query.DeadLetter
	Sentence string // the reason in words
	Met      string
}

// facetNames are in the order of the questions: why, what was met, by whom, when.
var facetNames = []struct{ facet, title string }{
	{"reason", "Reason"},
	{"outcome", "Outcome"},
	{"status", "Status"},
	{"subscription", "Event subscription"},
	{"day", "Day (UTC)"},
}

// deadLetterTotal is how far what matches is counted.
const deadLetterTotal = 10_000

func deadLetterQuery(q *display.Params) (d query.DeadLetterQuery) {
	d.Topic, d.Subscription, d.Reason, d.LastOutcome = given(q.Name("topic")), given(q.Name("subscription")),
		given(q.Name("reason")), given(q.Name("outcome"))
	d.EventID, d.EventType = given(q.Text("eventId")), given(q.Text("eventType"))
	d.DeadLetteredFrom, d.DeadLetteredUntil = q.Time("from"), q.Time("to")
	switch n := q.Number("status"); {
	case n == nil:
	case *n == 0:
		d.WithoutResponse = true
	default:
		d.LastStatus = new(int(min(*n, 999)))
	}
	return d
}

// given is nil for a filter that was left empty.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (p *pages) deadLetters(c echo.Context) error {
	q := display.QueryOf(c)
	f, turn := deadLetterQuery(q), display.TurnOf(q, display.ParseDeadLetterPlace)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadDeadLetters(ctx, f, turn)
	if err != nil {
		return err
	}
	looked := ""
	if found.SearchedTo != nil {
		looked = display.DeadLetterPlace(*found.SearchedTo)
	}
	view := deadLettersView{
		Partly: found.Partly,
		Filter: f.DeadLetterFilter, Status: c.QueryParam("status"), From: fieldTime(f.DeadLetteredFrom),
		To:    fieldTime(f.DeadLetteredUntil),
		Total: atMost(int(found.Total), deadLetterTotal), Filtered: !reflect.ValueOf(f).IsZero(),
		Facets: facetsOf(c, found.Facets),
		Paging: display.PagingOf(c, found.Page,
			func(l query.DeadLetter) string { return display.DeadLetterPlace(l.Place()) }).WithFurther(c, looked),
		SQL: deadLetterSQL(f), Export: exportOf(&f.DeadLetterFilter),
	}
	if !f.WithoutResponse {
		view.Redeliver = display.SameFilter(c, "/ui/dead-letters/redeliver", "before", "", "after", "")
		view.Purge = display.SameFilter(c, "/ui/dead-letters/purge", "before", "", "after", "")
	}
	for _, line := range found.Rows {
		view.Rows = append(view.Rows, deadLetterRowOf(line))
	}
	return p.show(c, "dead-letters", "Dead letters", true, view)
}

func deadLetterRowOf(line query.DeadLetter) deadLetterRow {
	return deadLetterRow{
		DeadLetter: line, Sentence: policy.Reason(line.Reason).Sentence(), Met: display.Met(line.Attempts, line.LastStatus),
	}
}

// fieldTime is a time as a field of a form holds it.
func fieldTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04")
}

func facetsOf(c echo.Context, facets map[string][]query.Facet) []facetGroup {
	var groups []facetGroup
	for _, kind := range facetNames {
		group := facetGroup{Name: kind.title}
		var counts []query.Counted
		for _, f := range facets[kind.facet] {
			counts = append(counts, query.Counted{Name: f.Name, Count: f.Count})
		}
		group.Shares = sharesOf(counts, func(name string) string { return facetHref(c, kind.facet, name) })
		for i := range group.Shares {
			s := &group.Shares[i]
			s.Here = facetHere(c, kind.facet, s.Name)
			if s.Here {
				group.All = facetHref(c, kind.facet, "")
			}
			s.Name = facetText(kind.facet, s.Name)
		}
		groups = append(groups, group)
	}
	return groups
}

// facetHref is the page with this value for its filter; "" without any.
func facetHref(c echo.Context, facet, value string) string {
	switch facet {
	case "subscription":
		topic, name, _ := strings.Cut(value, "/")
		return display.With(c, "before", "", "after", "", "topic", topic, "subscription", name)
	case "day":
		next := ""
		if day, err := time.Parse(time.DateOnly, value); err == nil {
			next = day.AddDate(0, 0, 1).Format(time.DateOnly)
		}
		return display.With(c, "before", "", "after", "", "from", value, "to", next)
	default:
		return display.With(c, "before", "", "after", "", facet, value)
	}
}

func facetHere(c echo.Context, facet, value string) bool {
	switch facet {
	case "subscription":
		return c.QueryParam("subscription") != "" && value == c.QueryParam("topic")+"/"+c.QueryParam("subscription")
	case "day":
		return c.QueryParam("from") == value
	default:
		return value != "" && c.QueryParam(facet) == value
	}
}

func facetText(facet, value string) string {
	switch {
	case facet == "status" && value == "0":
		return "no answer"
	case facet == "status":
		n, _ := strconv.Atoi(value)
		return display.StatusText(n)
	case value == "":
		return "not attempted"
	default:
		return value
	}
}

// quoteSQL writes a text as SQL does.
func quoteSQL(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// deadLetterSQL is the page's filter for people who go on in psql.
func deadLetterSQL(q query.DeadLetterQuery) string {
	var where []string
	add := func(condition, value string) { where = append(where, condition+value) }
	for _, c := range []struct {
		column string
		value  *string
	}{
		{"topic", q.Topic},
		{"subscription", q.Subscription},
		{"reason", q.Reason},
		{"last_outcome", q.LastOutcome},
		{"event_id", q.EventID},
		{"event_type", q.EventType},
	} {
		if c.value != nil {
			add(c.column+" = ", quoteSQL(*c.value))
		}
	}
	if q.LastStatus != nil {
		add("last_status = ", strconv.Itoa(*q.LastStatus))
	}
	if q.WithoutResponse {
		add("last_status is null", "")
	}
	if q.DeadLetteredFrom != nil {
		add("dead_lettered_at >= ", quoteSQL(q.DeadLetteredFrom.UTC().Format("2006-01-02 15:04:05Z")))
	}
	if q.DeadLetteredUntil != nil {
		add("dead_lettered_at < ", quoteSQL(q.DeadLetteredUntil.UTC().Format("2006-01-02 15:04:05Z")))
	}
	return selectSQL("dead_letters", where, "dead_lettered_at desc, dead_letter_id desc")
}

// selectSQL is the statement that asks a view for what a page shows.
func selectSQL(view string, where []string, order string) string {
	statement := "select * from postrider." + view
	if len(where) > 0 {
		statement += "\n where " + strings.Join(where, "\n   and ")
	}
	return statement + "\n order by " + order
}

// deadLetterView is what dead-letter.html shows.
type deadLetterView struct {
	query.DeadLetterRow
	Sentence, Met string
	Body, Answer  string
	Steps         []step
	SQL           string
	// What was typed into the form, when it was refused.
	ToTopic, ToSubscription string
	Again                   bool
}

// step is a moment of a course.
type step struct {
	At   time.Time
	Text string
}

func (p *pages) deadLetter(c echo.Context) error {
	view, err := p.readDeadLetter(c)
	if err != nil {
		return err
	}
	return p.show(c, "dead-letter", "Dead letter", true, *view)
}

func (p *pages) readDeadLetter(c echo.Context) (*deadLetterView, error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return nil, postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	d, err := p.parts.Reader.ReadDeadLetter(ctx, id)
	if err != nil {
		return nil, err
	}
	row := deadLetterRowOf(d.DeadLetter)
	return &deadLetterView{
		DeadLetterRow: *d, Sentence: row.Sentence, Met: row.Met, Body: display.OrEmpty(d.BodyText),
		Answer: display.OrEmpty(d.LastResponse), Steps: deadLetterSteps(&d.DeadLetter),
		SQL:     "select * from postrider.dead_letters where dead_letter_id = " + quoteSQL(id.String()),
		ToTopic: c.FormValue("toTopic"), ToSubscription: c.FormValue("toSubscription"), Again: c.FormValue("again") != "",
	}, nil
}

// deadLetterSteps are the moments that a dead letter knows of, in their order.
func deadLetterSteps(d *query.DeadLetter) []step {
	steps := []step{{d.PublishedAt, "published"}}
	if !d.OwedSince.Equal(d.PublishedAt) {
		steps = append(steps, step{d.OwedSince, "its time to live began"})
	}
	if d.FirstAttemptAt != nil {
		steps = append(steps, step{*d.FirstAttemptAt, "first attempt"})
	}
	if d.LastAttemptAt != nil && d.Attempts > 1 {
		steps = append(steps, step{*d.LastAttemptAt, fmt.Sprintf("attempt %d, the last", d.Attempts)})
	}
	steps = append(steps, step{d.DeadLetteredAt, "given up"})
	if d.RedeliveredAt != nil {
		steps = append(steps, step{*d.RedeliveredAt, "redelivered"})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.At.Compare(b.At) })
	return steps
}
