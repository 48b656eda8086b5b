package catalog

import (
	"context"
	"encoding/json"
	"fmt"

	"postrider/access"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

const (
	headersColumn          = "event_subscriptions.delivery_headers_sealed"
	handshakeHeadersColumn = "handshakes.headers_sealed"
)

// sealAttributes is nil (NULL) for none. The whole list is sealed: a header's name may be confidential too.
func (r records) sealAttributes(column string, list []policy.DeliveryAttribute) []byte {
	if len(list) == 0 {
		return nil
	}
	text, _ := json.Marshal(list) // strings and booleans can always be written
	return r.sealer.Seal(column, string(text))
}

func (r records) openAttributes(column string, sealed []byte) (list []policy.DeliveryAttribute, err error) {
	if sealed == nil {
		return nil, nil
	}
	text, err := r.sealer.Open(column, sealed)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read its custom headers: %w", err)
	}
	return list, nil
}

// keepAttributes replaces withheld values by the stored ones. existing was read in the transaction of the change.
func keepAttributes(given []policy.DeliveryAttribute, existing *Subscription) ([]policy.DeliveryAttribute, error) {
	var stored []policy.DeliveryAttribute
	if existing != nil {
		stored = existing.DeliveryAttributes
	}
	return policy.KeepSecrets(given, stored)
}

// RevealEndpoint reads an event subscription to show its endpoint's whole URL, which the audit records first.
// ErrNotFound.
func (s *Subscriptions) RevealEndpoint(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditEndpointShown)
}

// RevealDeliveryAttributes is RevealEndpoint for the values of secret headers.
func (s *Subscriptions) RevealDeliveryAttributes(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditAttributesShown)
}

// RevealSigningSecrets is RevealEndpoint for the secrets that sign deliveries.
func (s *Subscriptions) RevealSigningSecrets(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditSigningShown)
}

func (s *Subscriptions) reveal(
	ctx context.Context, topic, name string, action access.AuditAction,
) (sub *Subscription, err error) {
	err = access.Audited(ctx, s.db, access.AuditEntry{Action: action, Topic: topic, Subscription: name},
		func(tx pgx.Tx) error {
			sub, err = s.subscriptionOf(ctx, tx, topic, name)
			return err
		})
	if err != nil {
		return nil, err
	}
	return sub, nil
}
