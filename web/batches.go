package web

import (
	"context"
	"fmt"

	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
	"postrider/web/site"
)

func (p *pages) batches(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	var filter query.BatchFilter
	filter.Topic, filter.Subscription = owner(f)
	filter.State = f.OneOf("State", "state", "state = ?", query.DeliveryStates, "")
	list, err := site.ListOf(ctx, c, "batch", f, filter, p.parts.Reader.ReadBatches,
		func(l *query.BatchLine) int64 { return l.BatchID })
	return p.ShowList(c, "batches", "Batches", list, err)
}

// batchView is what batch.html shows.
type batchView struct {
	query.BatchDetails
	Outlook *outlook // nil if the batch has ended
	More    string   // the page with the next members
	SQL     string
}

// memberPage is the number of members of a batch that a page shows.
const memberPage = 500

func (p *pages) batch(ctx context.Context, c echo.Context) error {
	id, err := numberParam(c)
	if err != nil {
		return err
	}
	f, from := display.FilterOf(c), int64(0)
	if n := f.Number("", "from", ""); n != nil {
		from = *n
	}
	if f.Err != nil {
		return f.Err
	}
	b, err := p.parts.Reader.ReadBatch(ctx, id, int(min(from, 1<<30)), memberPage+1)
	if err != nil {
		return err
	}
	for i := range b.History {
		b.History[i].BatchID = nil // it is this page
	}
	view := batchView{
		BatchDetails: *b,
		SQL:          fmt.Sprintf("select * from postrider.batch_members where batch_id = %d order by position", id),
	}
	if len(view.Listed) > memberPage {
		view.Listed = view.Listed[:memberPage]
		view.More = display.With(c, "from", fmt.Sprint(view.Listed[memberPage-1].Position))
	}
	if b.State == "pending" {
		work := pendingWork{
			topic: b.Topic, subscription: b.Subscription, attempts: b.Attempts, hold: display.OrEmpty(b.Hold),
			job: jobState(b.Job), due: b.NextAttemptAt, ends: b.ExpiresAt, limit: p.attemptLimit(b.SubscriptionID),
		}
		if view.Outlook, err = p.outlookOf(ctx, &work); err != nil {
			return err
		}
	}
	return p.Show(c, "batch", fmt.Sprintf("Batch %d", id), b.State == "pending", view)
}
