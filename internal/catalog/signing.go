package catalog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/endpointconf"
	"postrider/internal/postgres"
)

const signingColumn = "event_subscriptions.signing_sealed"

// newSigningKey returns 32 random bytes: the length of an HMAC-SHA256.
func newSigningKey() []byte {
	key := make([]byte, postgres.KeyBytes)
	_, _ = rand.Read(key) // crypto/rand.Read never fails since Go 1.24
	return key
}

// ErrNotSigned means: the event subscription's deliveries are not signed.
var ErrNotSigned = errors.New("deliveries of the event subscription are not signed")

// secretTime is the current time with PostgreSQL's precision, like the times that are shown beside it.
func (c *Cache) secretTime() time.Time { return c.clock.Now().Truncate(time.Microsecond) }

func (r records) sealSigning(signing *endpointconf.Signing) []byte {
	text, _ := json.Marshal(signing.Secrets) // bytes and times can always be written
	return r.sealer.Seal(signingColumn, string(text))
}

// openSigning is nil if nothing is sealed.
func (r records) openSigning(sealed []byte) (*endpointconf.Signing, error) {
	if sealed == nil {
		return nil, nil
	}
	text, err := r.sealer.Open(signingColumn, sealed)
	if err != nil {
		return nil, err
	}
	signing := &endpointconf.Signing{}
	if err := json.Unmarshal([]byte(text), &signing.Secrets); err != nil {
		return nil, fmt.Errorf("read its signing secrets: %w", err)
	}
	return signing, nil
}

// RotateSigningSecret adds a new first secret to those that sign an event subscription's deliveries; the previous ones
// also sign for a while. A nil key is generated. Other nodes use it within a second. ErrNotFound; ErrNotSigned;
// *policy.ValidationError, see endpointconf.Signing.Rotate.
func (s *Subscriptions) RotateSigningSecret(
	ctx context.Context, topic, name string, key []byte, previous time.Duration,
) (sub *Subscription, err error) {
	if key == nil {
		key = newSigningKey()
	}
	err = s.cache.change(ctx, func(tx pgx.Tx) error {
		existing, err := s.subscriptionOf(ctx, tx, topic, name)
		if err != nil {
			return err
		}
		if !existing.Signing.Enabled {
			return fmt.Errorf("event subscription %q of topic %q: %w", name, topic, ErrNotSigned)
		}
		rotated, err := existing.SigningKeys.Rotate(key, s.cache.secretTime(), previous)
		if err != nil {
			return err
		}
		const update = "UPDATE postrider_internal.event_subscriptions SET signing_sealed = $2 WHERE id = $1"
		if err := postgres.Exec(ctx, tx, "replace a signing secret", update, existing.ID,
			s.sealSigning(rotated)); err != nil {
			return err
		}
		if err := access.Audit(ctx, tx, access.AuditEntry{
			Action: access.AuditSigningRotated, Topic: topic, Subscription: name,
			Changes: map[string]any{"signing": access.Changed},
		}); err != nil {
			return err
		}
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	return sub, err
}
