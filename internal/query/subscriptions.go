package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
)

// SubscriptionsFilter selects event subscriptions; "" = all. Hold "any" selects those on any hold.
type SubscriptionsFilter struct{ Topic, Name, Hold string }

// SubscriptionKey is the place of an event subscription in a list, which is in the order of topic and name.
type SubscriptionKey struct{ Topic, Subscription string }

// SubscriptionLine is one event subscription in a list.
type SubscriptionLine struct {
	Subscription      string  `column:"Event subscription" class:"long"`
	Topic             string  `column:"Topic" in:"subscription"`
	ProvisioningState string  `column:"State"`
	Hold              *string `column:"Hold" in:"provisioning_state"`
	// Validation is the result of the last handshake; nil after the validation ended.
	Validation      *string `column:"Detail" class:"long"`
	EndpointBaseURL string  `column:"Endpoint" class:"long"`
	// SparkGood and SparkBad are the successful and the failed attempts of the last hour, in twelve steps.
	SparkGood []int64 `column:"Last hour"`
	SparkBad  []int64
	// Attempts, Failures, Delivered and DeadLetters are counts of the last hour.
	Attempts            int64     `column:"Successful"`
	DeadLetters         int64     `column:"Dead letters"`
	RetryPolicy         string    `column:"Retry policy"`
	EndpointKind        string    `column:"Kind" off:""`
	EventDeliverySchema string    `column:"Delivery schema" off:""`
	MaxDeliveryAttempts *int      `column:"Limits" class:"" off:""`
	CreatedAt           time.Time `column:"Created" off:""`

	Failures, Delivered      int64
	EventTimeToLiveInMinutes int
	DeadLetterDestination    string
	HoldCause                *string
	HoldSince, HoldUntil     *time.Time
	Probing                  bool
	// Listed are the texts of settings that lists show, see catalog.SubscriptionSpec.Listed.
	Listed []string `db:"-"`
}

// ReadSubscriptions reads a page of event subscriptions in the order of topic and name: Before of the turn continues
// after a name. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptions(
	ctx context.Context, f SubscriptionsFilter, t Turn[SubscriptionKey],
) (page SearchedPage[SubscriptionLine, SubscriptionKey], err error) {
	args := pgx.NamedArgs{"topic": given(f.Topic), "name": given(f.Name), "hold": given(f.Hold)}
	err = read(ctx, r.db, "event subscriptions", func(r *reading) {
		page = readPage[SubscriptionLine](r, "subscriptions", t, false, args)
	})
	return page, err
}

// HandshakeLine is a step of a handshake, or a handshake without steps.
type HandshakeLine struct {
	HandshakeID     int64
	Purpose, State  string
	Message         string
	CreatedAt       time.Time
	Current         bool
	At              *time.Time
	Sent, Verdict   *string
	Status          *int
	Error, Response *string
	DurationMs      *float64
}

// DeliveryRate is the rate limit of an event subscription's deliveries.
type DeliveryRate struct {
	// Own is the limit per second that is set; Counts and Scope are its.
	Own                   *float64
	Counts, Scope         string
	ClosedUntil, DrainsAt *time.Time
	// TooLate: the time to live of some deliveries ends before their turn.
	TooLate bool
	// Waiting is how many deliveries wait for the limit or the endpoint, up to 10,000.
	Waiting int
}

// ReadDeliveryRate reads the rate limit of an event subscription; nil if it has none and its endpoint is not closed.
func (r *Reader) ReadDeliveryRate(ctx context.Context, id int64) (rate *DeliveryRate, err error) {
	err = read(ctx, r.db, "a delivery rate", func(r *reading) { rate = readDeliveryRate(r, id) })
	return rate, err
}

func readDeliveryRate(r *reading, id int64) *DeliveryRate {
	if rates := rows[DeliveryRate](r, "delivery_rate", pgx.NamedArgs{"id": id}); len(rates) > 0 {
		return &rates[0]
	}
	return nil
}

// SubscriptionDetails has the counts, handshakes, deliveries and changes of an event subscription.
type SubscriptionDetails struct {
	Range, Day *Counts         `db:"-"` // of the requested span; of 24 hours by the hour
	Handshakes []HandshakeLine `db:"-"` // the newest first, at most 50 steps
	Deliveries []DeliveryLine  `db:"-"` // the newest, at most 10
	// Held is the number of its deliveries on hold, and Pending of all that are pending, up to 10,000 each.
	Held, Pending int
	Audit         []AuditLine   `db:"-"` // the newest ten
	Rate          *DeliveryRate `db:"-"` // nil = no limit, and the endpoint is not closed
	Queue         *Queue        `db:"-"` // nil in push delivery
}

// ReadSubscriptionDetails reads the activity of an event subscription, and its counts of a span.
// ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptionDetails(
	ctx context.Context, sub *catalog.Subscription, span, step time.Duration,
) (*SubscriptionDetails, error) {
	const newest = 10
	var d SubscriptionDetails
	args := pgx.NamedArgs{"topic": sub.Topic, "subscription": sub.Name, "id": sub.ID}
	counts := countsFilter{Topic: sub.Topic, Subscription: sub.Name}
	err := read(ctx, r.db, "an event subscription", func(r *reading) {
		d = row[SubscriptionDetails](r, "pending", args)
		d.Rate = readDeliveryRate(r, sub.ID)
		if sub.Pulled() {
			q := row[Queue](r, "queue", args)
			q.Next, q.Locks = rows[NextEvent](r, "queue_next", args), rows[LockLine](r, "queue_locks", args)
			d.Queue = &q
		}
		d.Range, d.Day = readCounts(r, counts, span, step), readCounts(r, counts, 24*time.Hour, time.Hour)
		d.Handshakes = rows[HandshakeLine](r, "handshakes", args)
		filter := DeliveryFilter{Topic: sub.Topic, Subscription: sub.Name, Errors: true}
		d.Deliveries = readDeliveries(r, filter, Turn[DeliveryPlace]{Limit: newest}).Rows
		d.Audit = readAudit(r, AuditFilter{Topic: sub.Topic, Subscription: sub.Name}, Turn[int64]{Limit: newest}).Rows
	})
	return &d, err
}
