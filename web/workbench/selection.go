package workbench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/sqlquery"
	"postrider/web/display"
	"postrider/web/site"
)

// selectionActions are the actions on a selection by the last part of their path.
var selectionActions = []string{operator.Redeliver, operator.Purge, operator.Retry, operator.Cancel}

// mountSelections adds the pages of selections, and the results of operations on them.
func (p *Pages) mountSelections(ui *echo.Group, login, sameOrigin echo.MiddlewareFunc) {
	operates := site.Requires(access.RoleOperator)
	page := site.Timed(site.PageTime+previewTime, p.selection)
	ui.Match(readMethods, "/selections/:id", page, login, operates)
	ui.Match(readMethods, "/selections/:id/:action", func(c echo.Context) error { // reload of a rejection
		return c.Redirect(http.StatusSeeOther, selectionPath(c.Param("id")))
	}, login, operates)
	ui.GET("/selections/:id/export", p.unlimited(p.exportSelection), login, operates)
	for _, kind := range selectionActions {
		ui.POST("/selections/:id/"+kind, site.Act(p.actOn(kind), p.selection), sameOrigin, login, operates)
	}
	ui.POST("/query/select", p.long(p.selectRows), sameOrigin, login, site.RequiresQuery, operates)
	ui.GET("/operations/:id/results.csv", p.unlimited(p.downloadResults), login, site.Requires(access.RoleViewer))
}

// previewTime is how long a preview may take besides the time of other pages: it counts for 10 s.
const previewTime = 10 * time.Second

// SelectionPath is the page of a selection.
func SelectionPath(s *operator.Selection) string { return selectionPath(s.ID.String()) }

func selectionPath(id string) string { return "/ui/selections/" + url.PathEscape(id) }

// selectionView is the preview of a selection.
type selectionView struct {
	operator.Selection
	query.Selected
	Deliveries bool
	// Possible is how many items nothing prevents, and Problems are the others; nil if they were not counted.
	Possible *int64
	Problems []query.SelectedGroup
	Form     url.Values // the input of a rejected form
}

// Counted is the number of items.
func (v *selectionView) Counted() string {
	switch {
	case !v.Deliveries:
		return display.Plural(v.Count, "dead letter")
	case v.Count == 1:
		return "1 delivery"
	default:
		return display.Grouped(v.Count) + " deliveries"
	}
}

func (p *Pages) selection(ctx context.Context, c echo.Context) error {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return postgres.ErrNotFound
	}
	s, err := p.Operator.Selection(ctx, id)
	if err != nil {
		return err
	}
	view := selectionView{Selection: *s, Deliveries: s.Kind == operator.SelectedDeliveries, Form: site.Input(c)}
	selected, err := p.Reader.ReadSelected(ctx, id, view.Deliveries)
	if err != nil {
		return err
	}
	view.Selected = *selected
	view.count()
	list := site.Link{Href: "/ui/dead-letters", Text: "Dead letters"}
	if view.Deliveries {
		list = site.Link{Href: "/ui/deliveries", Text: "Deliveries"}
	}
	return p.Site.Show(c, "selection", "Selection", false, &view, list)
}

// count adds the groups up by their problem, if all groups are known.
func (v *selectionView) count() {
	var all, possible int64
	problems := map[string]int{}
	for _, g := range v.Groups {
		if all += g.Count; g.Result == nil {
			possible += g.Count
			continue
		}
		at, known := problems[*g.Result]
		if !known {
			at, problems[*g.Result] = len(v.Problems), len(v.Problems)
			v.Problems = append(v.Problems, query.SelectedGroup{Result: g.Result, Message: g.Message})
		}
		v.Problems[at].Count += g.Count
	}
	if v.Groups != nil && all == v.Grouped {
		v.Possible = &possible
	} else {
		v.Problems = nil
	}
}

// actOn starts an operation on a selection.
func (p *Pages) actOn(kind string) site.Action {
	return func(ctx context.Context, c echo.Context) (href string, err error) {
		id, err := uuid.Parse(c.Param("id"))
		if err != nil {
			return "", postgres.ErrNotFound
		}
		form, err := c.FormParams()
		if err != nil {
			return "", echo.NewHTTPError(http.StatusBadRequest)
		}
		do, err := ActionOf(display.FilterOfForm(form))
		if err != nil {
			return "", err
		}
		do.Kind, do.Again = kind, form.Get("again") != ""
		operation, err := p.Operator.ActOnSelection(ctx, id, &do)
		return "/ui/operations/" + operation.String() + "?done=started", err
	}
}

// maxRate is more than a database can process: a larger rate is a mistake.
const maxRate = 1_000_000

// ActionOf reads the target and the rate of an action from the fields of its form.
func ActionOf(f *display.Filter) (do operator.Action, err error) {
	do.To = operator.Target{Subscription: f.Name("", "toSubscription", ""), Topic: f.Name("", "toTopic", "")}
	rate := f.Number("", "rate", "")
	if f.Err != nil || rate != nil && (*rate < 1 || *rate > maxRate) {
		return do, site.Rejected(http.StatusBadRequest,
			"the rate must be a whole number from 1 to 1,000,000, or empty, and names must be text")
	}
	if rate != nil {
		do.Rate = int(*rate)
	}
	return do, nil
}

// Checked creates a selection of the rows that are checked in a list.
func Checked(ctx context.Context, c echo.Context, o *operator.Operator, kind string) (*operator.Selection, error) {
	if err := c.Request().ParseForm(); err != nil {
		return nil, echo.NewHTTPError(http.StatusBadRequest)
	}
	var deadLetters []uuid.UUID
	var deliveries []int64
	for _, text := range c.Request().PostForm["id"] {
		var err error
		if kind == operator.SelectedDeliveries {
			var id int64
			id, err = strconv.ParseInt(text, 10, 64)
			deliveries = append(deliveries, id)
		} else {
			var id uuid.UUID
			id, err = uuid.Parse(text)
			deadLetters = append(deadLetters, id)
		}
		if err != nil {
			return nil, site.Rejected(http.StatusBadRequest, "an id of the form is invalid")
		}
	}
	switch {
	case len(deadLetters)+len(deliveries) == 0:
		return nil, site.Rejected(http.StatusBadRequest, "no row is checked")
	case kind == operator.SelectedDeliveries:
		return o.SelectDeliveries(ctx, deliveries)
	default:
		return o.SelectDeadLetters(ctx, deadLetters)
	}
}

// selectRows creates a selection of a query's result: of the checked rows, or of all, for which the query runs again.
func (p *Pages) selectRows(ctx context.Context, c echo.Context) error {
	view, request, err := p.posted(ctx, c)
	if err != nil {
		return p.failed(ctx, c, view, err)
	}
	var s *operator.Selection
	if c.FormValue("which") == "all" {
		s, err = p.Operator.SelectQuery(ctx, p.Queries, request, c.FormValue("kind"))
	} else {
		s, err = Checked(ctx, c, p.Operator, c.FormValue("kind"))
	}
	var rejected *postgres.FunctionError
	switch {
	case errors.As(err, &rejected):
		err = site.RejectionOf(err)
		fallthrough
	case err != nil:
		return p.failed(ctx, c, view, err)
	}
	return c.Redirect(http.StatusSeeOther, SelectionPath(s))
}

// unlimited is a download, which takes as long as it takes.
func (p *Pages) unlimited(send site.Page) echo.HandlerFunc {
	return func(c echo.Context) error {
		// an error means that the response has no limit of its own
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Time{})
		return send(c.Request().Context(), c)
	}
}

// exportSelection sends the dead letters of a selection, one JSON object in a line.
func (p *Pages) exportSelection(ctx context.Context, c echo.Context) error {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return postgres.ErrNotFound
	}
	s, err := p.Operator.Selection(ctx, id)
	if err != nil || s.Kind != operator.SelectedDeadLetters {
		return errors.Join(err, postgres.ErrNotFound)
	}
	out := attachment(c, "dead-letters.ndjson", "application/x-ndjson")
	for before, after := -1, 0; before < after; {
		before = after
		after, err = query.EachSelected(ctx, p.DB.Pool, id, after, exportStep, func(l *query.StoredDeadLetter) error {
			text, err := json.Marshal(l)
			if err == nil {
				_, err = out.Write(append(text, '\n'))
			}
			return err
		})
		if err != nil {
			return p.broken(ctx, err)
		}
	}
	return out.Flush()
}

// exportStep is how many dead letters one statement of an export reads.
const exportStep = 500

// downloadResults sends the items that an operation skipped or failed to act on.
func (p *Pages) downloadResults(ctx context.Context, c echo.Context) error {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return postgres.ErrNotFound
	}
	if _, err := p.Reader.Operation(ctx, id); err != nil {
		return err
	}
	buffered := attachment(c, "results.csv", "text/csv; charset=utf-8")
	out := sqlquery.NewCSV(buffered)
	_ = out.Columns([]sqlquery.Column{
		{Name: "position", Type: "integer"},
		{Name: "dead_letter_id"},
		{Name: "delivery_id", Type: "bigint"},
		{Name: "result"},
		{Name: "counted_as"},
		{Name: "message"},
	})
	for after, more := 0, true; more; {
		list, err := p.Reader.OperationResults(ctx, id, after, resultStep)
		if err != nil {
			return p.broken(ctx, err)
		}
		for _, r := range list {
			after = r.Position
			_ = out.Row([]*string{
				textOf(&r.Position), textOf(r.DeadLetterID), textOf(r.DeliveryID), &r.Result, &r.CountedAs, &r.Message,
			})
		}
		more = len(list) == resultStep
	}
	return errors.Join(out.Close(), buffered.Flush())
}

const resultStep = 1000

// textOf is a value as text; nil for none.
func textOf[T any](v *T) *string {
	if v == nil {
		return nil
	}
	return new(fmt.Sprint(*v))
}

// attachment begins a download.
func attachment(c echo.Context, name, media string) *bufio.Writer {
	c.Response().Header().Set(echo.HeaderContentType, media)
	c.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="`+name+`"`)
	return bufio.NewWriterSize(c.Response(), 64<<10)
}

// broken breaks the connection of a download, so that the browser reports an incomplete file.
func (p *Pages) broken(ctx context.Context, err error) error {
	p.Site.Log.WarnContext(ctx, "a download ended early", "error", err)
	panic(http.ErrAbortHandler)
}
