package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/postgres"
)

// SubscriptionsFilter selects event subscriptions; "" = all. Hold "any" selects those on any hold.
type SubscriptionsFilter struct{ Topic, Name, Hold string }

// SubscriptionKey is the place of an event subscription in a list, which is in the order of topic and name.
type SubscriptionKey struct{ Topic, Subscription string }

// SubscriptionLine is one event subscription in a list.
type SubscriptionLine struct {
	Topic, Subscription, EndpointBaseURL, EndpointKind, EventDeliverySchema, RetryPolicy string
	MaxDeliveryAttempts                                                                  *int
	EventTimeToLiveInMinutes                                                             int
	DeadLetterDestination, ProvisioningState                                             string
	Hold, HoldCause                                                                      *string
	HoldSince, HoldUntil                                                                 *time.Time
	Probing                                                                              bool
	Validation                                                                           *string // nil after it ended
	CreatedAt                                                                            time.Time
	// Of the last hour.
	Delivered, Failures, Attempts, DeadLetters int64
	// SparkGood and SparkBad are the successful and the failed attempts of the last hour, in twelve steps.
	SparkGood, SparkBad []int64
}

var (
	subscriptionList = list[SubscriptionKey]{page: sqlFile("subscriptions.sql")}
	handshakeList    = sqlFile("handshakes.sql")
	pendingStatement = sqlFile("pending.sql")
)

// SubscriptionPage is a page of event subscriptions.
type SubscriptionPage = SearchedPage[SubscriptionLine, SubscriptionKey]

// ReadSubscriptions reads a page of event subscriptions in the order of topic and name: Before of the turn continues
// after a name. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptions(
	ctx context.Context, f SubscriptionsFilter, t Turn[SubscriptionKey],
) (SubscriptionPage, error) {
	return read(ctx, r, "event subscriptions", func(tx pgx.Tx) (SubscriptionPage, error) {
		args := pgx.NamedArgs{"topic": given(f.Topic), "name": given(f.Name), "hold": given(f.Hold)}
		return readPage[SubscriptionLine](ctx, tx, &subscriptionList, t, false, args)
	})
}

// HandshakeLine is a step of a handshake, or a handshake without steps.
type HandshakeLine struct {
	HandshakeID    int64
	Purpose, State string
	Message        string
	CreatedAt      time.Time
	Current        bool
	At             *time.Time
	Sent, Verdict  *string
	Status         *int
	Error, Answer  *string
	DurationMs     *float64
}

// SubscriptionDetails has the counts, handshakes, deliveries and changes of an event subscription.
type SubscriptionDetails struct {
	Range, Day *Counts         // of the requested span; of 24 hours by the hour
	Handshakes []HandshakeLine // the newest first, at most 50 steps
	Deliveries []DeliveryLine  // the newest, at most 10
	// Held is the number of its deliveries on hold, and Pending of all that are pending, up to 10,000 each.
	Held, Pending int
	Audit         []AuditLine // the newest ten
}

// ReadSubscriptionDetails reads the activity of an event subscription, and its counts of a span, see ReadCounts.
// ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadSubscriptionDetails(
	ctx context.Context, sub *catalog.Subscription, span, step time.Duration,
) (c *SubscriptionDetails, err error) {
	c = &SubscriptionDetails{}
	args := pgx.NamedArgs{"topic": sub.Topic, "subscription": sub.Name, "id": sub.ID}
	counts := CountsFilter{Topic: sub.Topic, Subscription: sub.Name}
	err = r.db.Read(ctx, "an event subscription", func(tx pgx.Tx) error {
		if c.Range, err = readCounts(ctx, tx, counts, span, step); err != nil {
			return err
		}
		if c.Day, err = readCounts(ctx, tx, counts, 24*time.Hour, time.Hour); err != nil {
			return err
		}
		if c.Handshakes, err = postgres.Rows[HandshakeLine](ctx, tx, handshakeList, args); err != nil {
			return err
		}
		few, err := postgres.Row[struct{ Held, Pending int }](ctx, tx, pendingStatement, args)
		if err != nil {
			return err
		}
		c.Held, c.Pending = few.Held, few.Pending
		filter := DeliveryFilter{Topic: sub.Topic, Subscription: sub.Name}
		page, err := readDeliveries(ctx, tx, filter, Turn[DeliveryPlace]{Limit: 10})
		if err != nil {
			return err
		}
		c.Deliveries = page.Rows
		audit, err := readAudit(ctx, tx, AuditFilter{Topic: sub.Topic, Subscription: sub.Name}, Turn[int64]{Limit: 10})
		c.Audit = audit.Rows
		return err
	})
	return c, err
}
