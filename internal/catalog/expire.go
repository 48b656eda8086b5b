package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

// Expired reports whether the event subscription's expirationTimeUtc has passed.
func (s *Subscription) Expired(now time.Time) bool {
	return s.ExpirationTimeUTC != nil && !now.Before(*s.ExpirationTimeUTC)
}

// anyExpired reports whether an event subscription is to be deleted.
func (c *Snapshot) anyExpired() bool {
	for topicID := range c.expiring {
		now := c.now()
		if slices.ContainsFunc(c.subsByTopic[topicID], func(s *Subscription) bool { return s.Expired(now) }) {
			return true
		}
	}
	return false
}

// Expire deletes event subscriptions whose expirationTimeUtc has passed, and cancels their pending deliveries. It reads
// the database only if the Snapshot in memory has one.
func (s *Subscriptions) Expire(ctx context.Context) error {
	if !s.cache.Snapshot().anyExpired() {
		return nil
	}
	const where = "WHERE s.deleted_at IS NULL AND s.expiration_time_utc <= now()"
	var expired []*Subscription
	err := s.cache.change(ctx, func(tx pgx.Tx) error {
		var err error
		if expired, err = s.querySubscriptions(ctx, tx, where); err != nil {
			return err
		}
		for _, sub := range expired {
			if err := s.remove(ctx, tx, sub, access.AuditSubscriptionExpired); err != nil {
				return err
			}
			doing := fmt.Sprintf("note that event subscription %q of topic %q has expired", sub.Name, sub.Topic)
			if err := postgres.Exec(ctx, tx, doing, "SELECT postrider_internal.note_expired($1)", sub.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete expired event subscriptions: %w", err)
	}
	for _, sub := range expired {
		if err := s.CancelPending(ctx, sub.ID); err != nil {
			return err
		}
	}
	return nil
}

// CancelReason is why the deliveries of an event subscription that is not in the Snapshot are canceled.
func (s *Subscriptions) CancelReason(ctx context.Context, subscription int64) (policy.Reason, error) {
	reason := policy.ReasonEventSubscriptionDeleted
	const query = "SELECT coalesce(postrider_internal.deletion_reason($1), $2)"
	if err := s.db.QueryRow(ctx, query, subscription, string(reason)).Scan(&reason); err != nil {
		return "", postgres.Outage("read why an event subscription was deleted", err)
	}
	return reason, nil
}
