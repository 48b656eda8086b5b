package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

type problemsView struct {
	Filter *display.Filter
	Within string
	State  string // "" = all
	Table  display.Table
	Rows   []query.Problem
	Here   string // the address of the page
}

// problemSpans are the spans to choose from.
var problemSpans = map[string]time.Duration{
	"15m": 15 * time.Minute, "1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour,
}

func (p *pages) problems(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	var filter query.ProblemFilter
	f.Read(&filter, p.Now())
	within := f.Within(problemSpans, []string{"15m", "1h", "6h", "24h", "7d"}, "24h")
	if f.Err != nil {
		return f.Err
	}
	list, err := p.Parts.Reader.ReadProblems(ctx, filter, within)
	if err != nil {
		return err
	}
	return p.Show(c, "problems", "Problems", true, problemsView{
		Filter: f, Within: display.Span(within), State: filter.State, Rows: list,
		Table: display.TableOf(c, "problems", list), Here: display.With(c),
	})
}

type problemView struct {
	query.Problem
	Steps []step
	SQL   string
	Hours []int      // for how long it may be acknowledged
	Form  url.Values // the input of a rejected form
}

// acknowledgedHours are the choices for an acknowledgment.
var acknowledgedHours = []int{1, 4, 24, 7 * 24}

func (p *pages) problem(ctx context.Context, c echo.Context, id uuid.UUID) error {
	found, err := p.Parts.Reader.ReadProblem(ctx, id)
	if err != nil {
		return err
	}
	return p.Show(c, "problem", "Problem", true, problemView{
		Problem: *found, Steps: problemSteps(found), Hours: acknowledgedHours, Form: site.Input(c),
		SQL: "select * from postrider.problems where problem_id = " + display.QuoteSQL(id.String()),
	}, display.Link{Href: "/ui/problems", Text: "Problems"})
}

func problemSteps(l *query.Problem) []step {
	last := &l.Last
	if !last.After(l.Since) {
		last = nil
	}
	return inOrder(step{&l.Since, "first failed attempt"}, step{last, "last failed attempt"},
		step{l.AcknowledgedAt, "acknowledged"}, step{l.RecoveredAt, "recovered"}, step{l.ResolvedAt, "resolved"},
		step{l.HoldUntil, "next probe"}, step{l.NextAttempt, "next attempt"})
}

func (p *pages) acknowledgeProblem(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	hours, err := strconv.Atoi(c.FormValue("hours"))
	if err != nil || !slices.Contains(acknowledgedHours, hours) {
		return "", site.Rejected(http.StatusBadRequest, "Choose for how long.")
	}
	until := p.Parts.Clock.Now().Add(time.Duration(hours) * time.Hour)
	return problemPath(id) + "?done=acknowledged",
		p.Parts.Operator.AcknowledgeProblem(ctx, id, until, strings.TrimSpace(c.FormValue("note")))
}

func (p *pages) resolveProblem(ctx context.Context, c echo.Context, id uuid.UUID) (href string, err error) {
	return problemPath(id) + "?done=problem-resolved",
		p.Parts.Operator.ResolveProblem(ctx, id, strings.TrimSpace(c.FormValue("note")))
}

func problemPath(id uuid.UUID) string { return "/ui/problems/" + id.String() }
