package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

func (p *pages) deliveries(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	filter := p.deliveryFilter(f)
	filter.Errors = display.TableOf(c, "deliveries", nil).Shows("last_error")
	list, err := site.ListOf(ctx, c, "delivery", f, filter, p.Parts.Reader.ReadDeliveries, (*query.DeliveryLine).Place)
	if filter.State == "" || filter.State == "pending" { // the operations change only pending deliveries
		list.Selectable(c, checkedDeliveries)
	}
	return p.ShowList(c, "deliveries", "Deliveries", deliveriesView{
		List: list, Retry: display.SameFilter(c, "/ui/deliveries/retry", notOfFilter...),
		Cancel: display.SameFilter(c, "/ui/deliveries/cancel", notOfFilter...),
	}, err)
}

type deliveriesView struct {
	site.List[query.DeliveryLine]
	// Retry and Cancel are the pages of the bulk operations.
	Retry, Cancel string
}

// deliveryFilter reads the filter of deliveries.
func (p *pages) deliveryFilter(f *display.Filter) (filter query.DeliveryFilter) {
	f.Read(&filter, p.Now())
	f.View, f.Order = "deliveries", "delivery_id desc"
	if filter.From != nil || filter.To != nil {
		f.Order = "system_id desc, delivery_id desc"
	}
	return filter
}

type deliveryView struct {
	query.DeliveryDetails
	Limit   int      // of attempts; 0 is none
	Outlook *outlook // nil if the delivery has ended
	// Similar are the dead letters that the edit of this repair may apply to, on the page Apply; nil if there are none.
	Similar *query.SimilarDeadLetters
	Apply   string
	SQL     string
}

func (p *pages) delivery(ctx context.Context, c echo.Context, id int64) error {
	d, err := p.Parts.Reader.ReadDelivery(ctx, id)
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
	if d.Edit != nil && d.RedeliveredFromKind == "dead letter" {
		similar, err := p.Parts.Reader.Similar(ctx, *d.RedeliveredFrom)
		if err != nil && !errors.Is(err, postgres.ErrNotFound) {
			return err
		}
		if err == nil && similar.Count > 0 {
			view.Similar = similar
			view.Apply = "/ui/dead-letters/repair?" + url.Values{
				"topic": {similar.Topic}, "subscription": {similar.Subscription}, "reason": {similar.Reason},
				"eventType": {similar.EventType}, "state": {"open"}, patchOf: {strconv.FormatInt(id, 10)},
			}.Encode()
		}
	}
	return p.Show(c, "delivery", fmt.Sprintf("Delivery %d", id), d.State == "pending", view)
}

// attemptLimit is the limit of attempts of an event subscription; 0 is none.
func (p *pages) attemptLimit(subscription int64) int {
	rules, ok := p.Parts.Cache.Snapshot().Rules(subscription)
	if !ok {
		return 0
	}
	return rules.Limits.MaxAttempts
}

func (p *pages) batches(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	var filter query.BatchFilter
	f.Read(&filter, p.Now())
	f.View, f.Order = "batches", "batch_id desc"
	list, err := site.ListOf(ctx, c, "batch", f, filter, p.Parts.Reader.ReadBatches,
		func(l *query.BatchLine) int64 { return l.BatchID })
	return p.ShowList(c, "batches", "Batches", list, err)
}

type batchView struct {
	query.BatchDetails
	Outlook *outlook // nil if the batch has ended
	More    string   // the address of the next members
	SQL     string
}

// memberPage is the number of members on a page.
const memberPage = 500

func (p *pages) batch(ctx context.Context, c echo.Context, id int64) error {
	f, from := display.FilterOf(c), int64(0)
	if n := f.Number("", "from", ""); n != nil {
		from = *n
	}
	if f.Err != nil {
		return f.Err
	}
	b, err := p.Parts.Reader.ReadBatch(ctx, id, int(min(from, 1<<30)), memberPage+1)
	if err != nil {
		return err
	}
	for i := range b.History {
		b.History[i].BatchID = nil // no link to this page itself
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

// outlook is what happens next to a pending delivery or batch.
type outlook struct {
	// Hold is what it waits for; "" is no hold. Since and Until are the times of the hold, if known. Until is the next
	// probe of a probation.
	Hold         string
	Since, Until *time.Time
	// Probe is the path that sends the next probe now; "" without a probation.
	Probe string
	// CanRetry reports that no hold prevents an attempt.
	CanRetry bool
	// Next describes the next step in one or two sentences.
	Next string
}

// pendingWork is the input of an outlook.
type pendingWork struct {
	topic, subscription string
	attempts            int
	hold                string
	limit               int        // of attempts; 0 is none
	job                 string     // the state of its job; "" without a job
	unbatched           bool       // it waits for the next batch
	pulled              bool       // consumers receive it; its job is a consumer's lock
	due                 *time.Time // nil is now
	ends                *time.Time // the end of its time to live, if known
}

// outlookOf reads how long the hold lasts.
func (p *pages) outlookOf(ctx context.Context, w *pendingWork) (*outlook, error) {
	o := &outlook{Hold: w.hold}
	sub, err := p.Parts.Subscriptions.Get(ctx, w.topic, w.subscription)
	switch {
	case errors.Is(err, postgres.ErrNotFound): // just deleted
	case err != nil:
		return o, err
	case o.Hold == sub.Hold.Reason:
		o.Since, o.Until = sub.Hold.Since, sub.Hold.Until
	}
	if o.Hold == catalog.HoldProbation {
		o.Probe = subscriptionPath(w.topic, w.subscription) + "/probe"
	}
	w.pulled = sub != nil && sub.Pulled()
	locked := w.pulled && w.job != ""
	o.CanRetry = o.Hold == "" && !locked || o.Hold == catalog.HoldAdmission || o.Hold == catalog.HoldRateLimited
	o.Next = nextText(w, p.Now())
	return o, nil
}

// jobState is the state of a job; "" without a job.
func jobState(job *query.JobLine) string {
	if job == nil {
		return ""
	}
	return job.State
}

// nextText states a time only if no hold and no end of the time to live comes first.
func nextText(w *pendingWork, now time.Time) string {
	attempt := fmt.Sprintf("Attempt %d", w.attempts+1)
	later := w.due != nil && w.due.After(now)
	switch {
	case w.job == "running":
		return "An attempt is in progress."
	case w.hold != "":
		return holdTexts[w.hold]
	case w.pulled && w.job != "":
		return "A consumer has received it, and its lock is valid."
	case w.pulled && later:
		return "Consumers may receive it " + display.Relative(now.Sub(*w.due)) + "."
	case w.pulled:
		return "It waits until a consumer receives it."
	case w.limit > 0 && w.attempts >= w.limit:
		return fmt.Sprintf("No further attempt: maxDeliveryAttempts is %d. The delivery ends when it is due.", w.limit)
	case w.unbatched:
		return "It waits for the next batch of its event subscription."
	case later && w.ends != nil && !w.due.Before(*w.ends):
		return "No further attempt: its time to live ends first. The delivery ends " + display.Relative(now.Sub(*w.due)) + "."
	case later:
		return attempt + " starts " + display.Relative(now.Sub(*w.due)) + "."
	default:
		return attempt + " is due now and waits for a worker."
	}
}

// holdTexts describe each hold and what ends it.
var holdTexts = map[string]string{
	catalog.HoldPaused:       "The event subscription is paused until an operator resumes it.",
	catalog.HoldNotValidated: "The endpoint is not validated. Deliveries begin when the validation handshake succeeds.",
	catalog.HoldProbation: "The endpoint is in probation. Probes are sent one by one; if one succeeds, the probation " +
		"ends.",
	catalog.HoldAdmission: "It is released when its event subscription has capacity for one more delivery in progress.",
	catalog.HoldRateLimited: "The rate limit of its event subscription or endpoint is reached, or the endpoint has " +
		"requested to wait. The oldest deliveries go first.",
}
