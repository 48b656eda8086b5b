package catalog

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"
)

// Relays records the feeds of relay topics: the event subscriptions of another service that deliver into them.
type Relays struct{ records }

// NewRelays returns the feeds of a catalog's topics.
func NewRelays(cache *Cache) *Relays { return &Relays{cache.records} }

// RelayHandshake is a handshake of another service with a relay topic.
type RelayHandshake struct {
	TopicID int64
	// Subscription is the name of the other service's event subscription; "" if it is unknown.
	Subscription string
	// Source is the topic in the other service; "" if it is unknown.
	Source string
	// Schema is event.EventGrid or event.CloudEvents.
	Schema event.Schema
	// Origin is that of a CloudEvents handshake.
	Origin string
	// Callback is the URL that may be opened instead of the response; nil without one. It is a secret.
	Callback *url.URL
}

// NoteHandshake records a handshake that postrider accepts. noted is false if the topic has too many feeds.
// ErrUnavailable.
func (r *Relays) NoteHandshake(ctx context.Context, h *RelayHandshake) (noted bool, err error) {
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		const note = "SELECT postrider_internal.note_relay_handshake($1, $2, $3, $4, $5)"
		var feed *int64 // nil: the topic has too many
		if err := tx.QueryRow(ctx, note, h.TopicID, h.Subscription, h.Source, h.Schema, h.Origin).Scan(&feed); err != nil {
			return err
		}
		if noted = feed != nil; !noted || h.Callback == nil {
			return nil
		}
		callback := SubscriptionSpec{EndpointURL: h.Callback.String()}
		settings, secrets, err := r.sealSpec(handshakeSecretsColumn, callback)
		if err != nil {
			return err
		}
		const offer = "SELECT postrider_internal.offer_relay_callback($1, $2, $3, $4, $5, $6)"
		return postgres.Exec(ctx, tx, "offer a callback", offer, *feed, settings, secrets,
			endpointconf.BaseURL(h.Callback), r.endpointHash(callback.target()), CallbackLifetime)
	})
	if err != nil {
		return false, postgres.Outage("record a handshake with a relay topic", err)
	}
	return noted, nil
}

// End records that the other service has deleted its event subscription. ErrUnavailable.
func (r *Relays) End(ctx context.Context, topicID int64, subscription, source string) error {
	const end = "SELECT postrider_internal.end_relay_feed($1, $2, $3)"
	if _, err := r.db.Exec(ctx, end, topicID, subscription, source); err != nil {
		return postgres.Outage("record the end of a relay feed", err)
	}
	return nil
}

// Relayed is what a relay topic has received of a feed.
type Relayed struct {
	TopicID              int64
	Subscription, Source string
	// Last is when the last request came.
	Last time.Time
	// DeliveryCount is how many attempts the other service made before the last request; nil if it is unknown.
	DeliveryCount *int
	// The response to Requests was 200, to Rejected ones 4xx because of their content. Looped ones had been sent by
	// postrider itself, and were rejected as well.
	Requests, Rejected, Looped int64
	// Events were stored, and Duplicates had been stored before.
	Events, Duplicates int64
}

// secondsAgo is how long ago the last request came: the database subtracts it from its own time.
func (r *Relayed) secondsAgo() float64 { return time.Since(r.Last).Seconds() }

var relayedColumns = postgres.Columns[*Relayed]{
	postgres.Col("topics", func(r *Relayed) int64 { return r.TopicID }),
	postgres.Col("names", func(r *Relayed) string { return r.Subscription }),
	postgres.Col("sources", func(r *Relayed) string { return r.Source }),
	postgres.Col("seconds", (*Relayed).secondsAgo),
	postgres.Col("delivery_counts", func(r *Relayed) *int { return r.DeliveryCount }),
	postgres.Col("requests", func(r *Relayed) int64 { return r.Requests }),
	postgres.Col("events", func(r *Relayed) int64 { return r.Events }),
	postgres.Col("duplicates", func(r *Relayed) int64 { return r.Duplicates }),
	postgres.Col("rejected", func(r *Relayed) int64 { return r.Rejected }),
	postgres.Col("looped", func(r *Relayed) int64 { return r.Looped }),
}

// Count adds what was received since the last call. Nothing is added if it fails. It returns how many items of the list
// could not be counted, because their topic has too many feeds.
func (r *Relays) Count(ctx context.Context, list []*Relayed) (skipped int, err error) {
	const count = "SELECT postrider_internal.count_relayed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
	if err := r.db.QueryRow(ctx, count, relayedColumns.Append(nil, list)...).Scan(&skipped); err != nil {
		return 0, fmt.Errorf("count what relay topics have received: %w", err)
	}
	return skipped, nil
}
