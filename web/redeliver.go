package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

func deadLetterPath(id uuid.UUID) string { return "/ui/dead-letters/" + id.String() }

func (p *pages) redeliverOne(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return "", postgres.ErrNotFound
	}
	form, err := letterFormOf(c)
	if err != nil {
		return "", err
	}
	delivery, err := p.parts.Operator.Redeliver(ctx, id, form.to, c.FormValue("again") != "")
	return deliveryPath(delivery) + "?done=redelivered", err
}

// purging is the page that asks whether a dead letter shall go for good.
func (p *pages) purging(c echo.Context) error {
	view, err := p.readDeadLetter(c)
	if err != nil {
		return err
	}
	return p.show(c, "dead-letter-purge", "Purge this dead letter?", false, *view,
		link{deadLetterPath(view.DeadLetterID), "Dead letter"})
}

func (p *pages) purgeOne(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return "", postgres.ErrNotFound
	}
	purged, err := p.parts.Operator.Purge(ctx, id)
	if err == nil && !purged {
		err = postgres.ErrNotFound
	}
	return "/ui/dead-letters?done=purged", err
}

// letterForm is what the forms of dead letters hold.
type letterForm struct {
	to          operator.Target
	rate        int   // 0 = as fast as it goes
	redelivered *bool // which of those that match; nil = what is usual
}

// mostPerSecond is more than any database does; what is larger is a slip of the hand.
const mostPerSecond = 1_000_000

// letterFormOf refuses what cannot be meant.
func letterFormOf(c echo.Context) (f letterForm, err error) {
	if err := c.Request().ParseForm(); err != nil {
		return f, wrongForm("the form cannot be read.")
	}
	q := &display.Params{Values: c.Request().PostForm}
	f.to = operator.Target{Subscription: q.Name("toSubscription"), Topic: q.Name("toTopic")}
	rate := q.Number("rate")
	if which := q.OneOf("redelivered", []string{"true", "false"}); which != "" {
		f.redelivered = new(which == "true")
	}
	switch {
	case q.Err != nil, rate != nil && (*rate < 1 || *rate > mostPerSecond):
		return f, wrongForm("the rate must be a whole number from 1 to 1,000,000, or empty, and names must be text.")
	case rate != nil:
		f.rate = int(*rate)
	}
	return f, nil
}

// manyView is what dead-letters-many.html shows: what would be done to how many.
type manyView struct {
	Purge bool
	Facts []fact
	// Until is when they were counted: later ones are left out.
	Until time.Time
	// Fresh were not redelivered before, Redelivered were.
	Fresh, Redelivered int64
	// AtLeast: counting was stopped, and there may be more. All that match are meant all the same.
	AtLeast      bool
	Action, Back string
	Export       exportLine
	// What was typed into the form, when it was refused.
	Rate, ToTopic, ToSubscription, Which string
	FilterTopic                          string
}

// All is how many match.
func (v manyView) All() int64 { return v.Fresh + v.Redelivered }

func (p *pages) manyToRedeliver(c echo.Context) error {
	return p.many(c, false, "Redeliver all that match?", "/ui/dead-letters/redeliver")
}

func (p *pages) manyToPurge(c echo.Context) error {
	return p.many(c, true, "Purge all that match?", "/ui/dead-letters/purge")
}

// many counts what matches, and does nothing.
func (p *pages) many(c echo.Context, purge bool, title, path string) error {
	f, err := p.manyFilter(c)
	if err != nil {
		return err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	view := manyView{
		Purge: purge, Facts: filterFacts(&f), Until: *f.DeadLetteredUntil, Export: exportOf(&f),
		FilterTopic: display.OrEmpty(f.Topic),
		Action:      display.SameFilter(c, path, "to", f.DeadLetteredUntil.Format(time.RFC3339Nano)),
		Back:        display.SameFilter(c, "/ui/dead-letters"),
		Rate:        c.FormValue("rate"), ToTopic: c.FormValue("toTopic"), ToSubscription: c.FormValue("toSubscription"),
		Which: c.FormValue("redelivered"),
	}
	if err = p.countLetters(ctx, f, &view); err != nil {
		return err
	}
	return p.show(c, "dead-letters-many", title, false, view, link{view.Back, "Dead letters"})
}

// manyFilter is the filter of the address, closed now: whoever agrees to a number agrees to none that come later.
func (p *pages) manyFilter(c echo.Context) (query.DeadLetterFilter, error) {
	q := display.QueryOf(c)
	f := deadLetterQuery(q)
	switch {
	case q.Err != nil:
		return f.DeadLetterFilter, q.Err
	case f.WithoutResponse:
		return f.DeadLetterFilter, fmt.Errorf("%w: those without an answer are found by their outcome", display.ErrQuery)
	case f.DeadLetteredUntil == nil:
		f.DeadLetteredUntil = new(p.now().UTC().Truncate(time.Microsecond))
	}
	return f.DeadLetterFilter, nil
}

// countTime is longer than the store counts for.
const countTime = 8 * time.Second

func (p *pages) countLetters(ctx context.Context, f query.DeadLetterFilter, view *manyView) error {
	bounded, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	f.Redelivered = nil // both are told
	found, err := p.parts.Reader.CountDeadLetters(bounded, &f)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("count dead letters within %s: %w: %w", countTime, postgres.ErrTooSlow, err)
	}
	view.Fresh, view.Redelivered, view.AtLeast = found.Matched-found.Redelivered, found.Redelivered, found.AtLeast
	return err
}

func (p *pages) redeliverMany(ctx context.Context, c echo.Context) (href string, err error) {
	f, form, err := p.manyForm(c)
	if err != nil {
		return "", err
	}
	id, err := p.parts.Operator.RedeliverAll(ctx, &f, form.to, form.rate)
	return operationPath(id) + "?done=started", err
}

func (p *pages) purgeMany(ctx context.Context, c echo.Context) (href string, err error) {
	f, form, err := p.manyForm(c)
	if err != nil {
		return "", err
	}
	id, err := p.parts.Operator.PurgeAll(ctx, &f, form.rate)
	return operationPath(id) + "?done=started", err
}

func (p *pages) manyForm(c echo.Context) (f query.DeadLetterFilter, form letterForm, err error) {
	if f, err = p.manyFilter(c); err != nil {
		return f, form, err
	}
	form, err = letterFormOf(c)
	f.Redelivered = form.redelivered
	return f, form, err
}
