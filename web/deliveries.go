package web

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
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
	list, err := listOf(ctx, c, "delivery", f, filter, p.parts.Reader.ReadDeliveries, (*query.DeliveryLine).Place)
	return p.showList(c, "deliveries", "Deliveries", list, err)
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
	view := deliveryView{
		DeliveryDetails: *d,
		SQL:             fmt.Sprintf("select * from postrider.delivery_attempts where delivery_id = %d order by started_at", id),
	}
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
	return p.show(c, "delivery", fmt.Sprintf("Delivery %d", id), d.State == "pending", view)
}

// attemptLimit is how many attempts the deliveries of an event subscription may have; 0 = any number.
func (p *pages) attemptLimit(subscription int64) int {
	rules, ok := p.parts.Cache.Snapshot().Rules(subscription)
	if !ok {
		return 0
	}
	return rules.Limits.MaxAttempts
}

// longest is the duration of the longest of some attempts in milliseconds.
func longest(history []query.AttemptLine) (longest float64) {
	for i := range history {
		longest = max(longest, history[i].DurationMs)
	}
	return longest
}

// longWait is from when on the wait of a due attempt is shown.
const longWait = 5 * time.Second

// waited is how long an attempt waited after it was due; "" if not for long.
func waited(a query.AttemptLine) string {
	if a.DueAt == nil || a.StartedAt.Sub(*a.DueAt) <= longWait {
		return ""
	}
	return display.Span(a.StartedAt.Sub(*a.DueAt))
}

// verdictText says what the policy decided after an attempt.
func verdictText(a query.AttemptLine) string {
	switch a.Verdict {
	case "deliver":
		if a.Late {
			return "late, and counted as delivered: the queued retry was canceled"
		}
		return "delivered"
	case "retry":
		return "another attempt"
	case "dead_letter":
		return "given up: it became a dead letter"
	case "drop":
		return "given up: it was dropped"
	case "note":
		return "late: it changed nothing"
	default:
		return a.Verdict
	}
}
