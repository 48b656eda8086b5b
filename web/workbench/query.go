package workbench

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/docs"
	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/web/site"
)

// queryView is the page of the query editor.
type queryView struct {
	SQL        string
	Parameters []parameter
	// Open is the saved query or the question in the editor; nil if there is none.
	Open *sqlquery.Saved
	// Own: the user may change or delete Open.
	Own bool
	// Form is the input of a rejected form.
	Form      url.Values
	Saved     []sqlquery.Saved
	Questions []docs.Question
	Views     []query.View
	Result    *result
	Plan      string
	Mistake   *mistake
}

// query is the page of the query editor. Its address opens a saved query or a documented question but runs nothing.
func (p *Pages) query(ctx context.Context, c echo.Context) error {
	view, err := p.opened(ctx, c)
	if err != nil {
		return err
	}
	if input := site.Input(c); input != nil { // of a rejected form
		view.Form = input
		view.SQL, view.Parameters = inputOf(input)
	}
	if err := p.sidebar(ctx, &view); err != nil {
		return err
	}
	return p.Site.Show(c, "query", "Query", false, view)
}

// opened is the view with the query that the address names.
func (p *Pages) opened(ctx context.Context, c echo.Context) (view queryView, err error) {
	if name := c.QueryParam("question"); name != "" {
		question, ok := docs.Find(name)
		if !ok {
			return view, postgres.ErrNotFound
		}
		sql, names := templateOf(question)
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = c.QueryParam(name)
		}
		view.SQL, view.Parameters = sql, parametersOf(sql, values)
		view.Open = &sqlquery.Saved{
			Name: question.Name, Description: strings.TrimSpace(question.Title + " " + question.Note), Template: true,
		}
		return view, nil
	}
	return view, p.reopen(ctx, cmp.Or(c.QueryParam("saved"), c.QueryParam("temporary")), &view)
}

// reopen puts a saved query into the editor, if the name is not empty.
func (p *Pages) reopen(ctx context.Context, name string, view *queryView) error {
	if name == "" {
		return nil
	}
	saved, err := p.SavedQueries.Get(ctx, name)
	if err != nil {
		return err
	}
	actor := access.ActorOf(ctx)
	view.SQL, view.Parameters = saved.SQL, parametersOf(saved.SQL, nil)
	if !saved.Temporary {
		view.Open = saved
		view.Own = !saved.Template && (saved.Owner == actor.Name || actor.Role.Allows(access.RoleAdmin))
	}
	return nil
}

// sidebar reads what is beside the editor.
func (p *Pages) sidebar(ctx context.Context, view *queryView) (err error) {
	view.Questions = docs.Questions()
	if view.Views, err = p.Reader.ReadViews(ctx); err != nil {
		return err
	}
	all, err := p.SavedQueries.List(ctx)
	for _, saved := range all {
		if !saved.Template {
			view.Saved = append(view.Saved, saved)
		}
	}
	return err
}

// inputOf reads the query of a form. Browsers send line ends as CR LF.
func inputOf(values url.Values) (sql string, parameters []parameter) {
	sql = strings.ReplaceAll(values.Get("sql"), "\r\n", "\n")
	return sql, parametersOf(sql, values["arg"])
}

// posted reads the query that a form sends, with the name of the saved query if its SQL was not changed.
func (p *Pages) posted(ctx context.Context, c echo.Context) (view queryView, request sqlquery.Request, err error) {
	values := c.Request().PostForm
	if name := values.Get("open"); name != "" {
		if err := p.reopen(ctx, name, &view); err != nil && !errors.Is(err, postgres.ErrNotFound) {
			return view, request, err
		}
	}
	saved := view.SQL
	view.SQL, view.Parameters = inputOf(values)
	request.SQL = view.SQL
	if view.Open != nil && saved == view.SQL {
		request.Name = view.Open.Name
	}
	for _, parameter := range view.Parameters {
		request.Args = append(request.Args, parameter.Value)
	}
	if sent := len(values["arg"]); sent < len(view.Parameters) {
		err = errParameters
	}
	return view, request, err
}

// errParameters: the form had no fields for the parameters yet.
var errParameters = &site.RejectionError{
	Status: http.StatusBadRequest, Text: "Enter the values of the parameters, then run the query.",
}

// run runs the query of the form, or shows its plan.
func (p *Pages) run(ctx context.Context, c echo.Context) error {
	view, request, err := p.posted(ctx, c)
	switch {
	case err != nil:
	case c.FormValue("do") == "plan":
		view.Plan, err = p.Queries.Plan(ctx, request)
	default:
		var found *sqlquery.Result
		if found, err = p.Queries.Run(ctx, request); err == nil {
			view.Result = resultOf(found)
		}
	}
	if err != nil {
		return p.failed(ctx, c, view, err)
	}
	if err := p.sidebar(ctx, &view); err != nil {
		return err
	}
	return p.Site.Respond(c, http.StatusOK, "query", "Query", view)
}

// failed shows why a query has no result.
func (p *Pages) failed(ctx context.Context, c echo.Context, view queryView, err error) error {
	explained, status := mistakeOf(err, view.SQL)
	if view.Mistake = explained; explained == nil {
		return err
	}
	if err := p.sidebar(ctx, &view); err != nil {
		return err
	}
	return p.Site.Respond(c, status, "query", "Query", view)
}

// mistakeOf explains the error of a query in words for the user; nil for other errors.
func mistakeOf(err error, sql string) (*mistake, int) {
	var rejected *sqlquery.Error
	var own *site.RejectionError
	var busy *postgres.BusyError
	switch {
	case errors.As(err, &own):
		return &mistake{Title: own.Text}, own.Status
	case errors.As(err, &rejected):
		m := &mistake{Title: rejected.Message, Advice: rejected.Hint}
		if rejected.State == "42501" { // insufficient_privilege
			m.Advice = "Queries read the views and functions of schema postrider."
		}
		m.locate(sql, rejected.Position)
		return m, http.StatusBadRequest
	case errors.Is(err, sqlquery.ErrDeadline):
		return &mistake{Title: site.Sentence(err.Error()), Advice: "It was canceled. Restrict it by time, topic or event " +
			"subscription. Explain shows what it reads."}, http.StatusGatewayTimeout
	case errors.Is(err, sqlquery.ErrBusy), errors.As(err, &busy):
		return &mistake{Title: site.Sentence(err.Error()), Advice: "Nothing was run."}, http.StatusServiceUnavailable
	case errors.Is(err, sqlquery.ErrTooLarge):
		return &mistake{
			Title: site.Sentence(err.Error()), Advice: "Select fewer columns, or shorten them with left().",
		}, http.StatusBadRequest
	case errors.Is(err, sqlquery.ErrNotConfigured):
		return &mistake{Title: site.Sentence(err.Error())}, http.StatusServiceUnavailable
	default:
		return nil, 0
	}
}
