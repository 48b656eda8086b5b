package catalog

import (
	"context"

	"postrider/access"

	"github.com/jackc/pgx/v5"
)

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
