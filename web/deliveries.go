package web

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
	"postrider/web/site"
)

var outcomeWords = []string{
	"Delivered", "BadRequest", "Unauthorized", "Forbidden", "NotFound", "TimedOut", "PayloadTooLarge", "Busy",
	"SocketError", "ResolutionError", "Canceled", "GenericError", "Probation", "Aborted",
}

// eventID reads the publisher's id of an event, or postrider's.
func eventID(c echo.Context, f *display.Filter) string {
	condition := "event_id = ?"
	if _, err := uuid.Parse(c.QueryParam("event")); err == nil {
		condition = "system_id = ?"
	}
	return f.Text("Event id", "event", condition)
}

func (p *pages) deliveries(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	var filter query.DeliveryFilter
	filter.Topic, filter.Subscription = owner(f)
	filter.State = f.OneOf("State", "state", "state = ?", query.DeliveryStates, "")
	filter.Hold = f.OneOf("Hold", "hold", "hold = ?", query.HoldReasons, "")
	filter.Outcome = f.Suggest("Last outcome", "outcome", "last_outcome = ?", outcomeWords)
	filter.Event = eventID(c, f)
	if text := f.Text("", "operation", "operation_id = ?"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			f.Reject("operation")
		}
		filter.Operation = &id
	}
	f.View, f.Order = "deliveries", "delivery_id desc"
	list, err := site.ListOf(ctx, c, "delivery", f, filter, p.parts.Reader.ReadDeliveries, (*query.DeliveryLine).Place)
	return p.ShowList(c, "deliveries", "Deliveries", list, err)
}

// deliveryView is what delivery.html shows.
type deliveryView struct {
	query.DeliveryDetails
	Limit   int      // of attempts; 0 = none
	Outlook *outlook // nil if the delivery has ended
	SQL     string
}

func (p *pages) delivery(ctx context.Context, c echo.Context) error {
	id, err := numberParam(c)
	if err != nil {
		return err
	}
	d, err := p.parts.Reader.ReadDelivery(ctx, id)
	if err != nil {
		return err
	}
	const attempts = "select * from postrider.delivery_attempts where delivery_id = %d order by started_at"
	view := deliveryView{DeliveryDetails: *d, SQL: fmt.Sprintf(attempts, id)}
	if d.State == "pending" {
		work := pendingWork{
			topic: d.Topic, subscription: d.Subscription, attempts: d.Attempts, hold: display.OrEmpty(d.Hold),
			job: jobState(d.Job), unbatched: d.Job == nil && d.BatchID == nil, due: d.NextAttemptAt, ends: d.ExpiresAt,
			limit: p.attemptLimit(d.SubscriptionID),
		}
		view.Limit = work.limit
		if view.Outlook, err = p.outlookOf(ctx, &work); err != nil {
			return err
		}
	}
	return p.Show(c, "delivery", fmt.Sprintf("Delivery %d", id), d.State == "pending", view)
}

// attemptLimit is how many attempts the deliveries of an event subscription may have; 0 = any number.
func (p *pages) attemptLimit(subscription int64) int {
	rules, ok := p.parts.Cache.Snapshot().Rules(subscription)
	if !ok {
		return 0
	}
	return rules.Limits.MaxAttempts
}
