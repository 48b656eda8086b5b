package v1

import (
	"context"
	"errors"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/policy"
	"postrider/server/api"
)

// previousSecretByDefault is how long a replaced secret keeps signing by default.
const previousSecretByDefault = 24 * time.Hour

// Signing is the state of signing, without secrets.
type Signing struct {
	Enabled bool `json:"enabled"`
	// Secrets counts the secrets that sign now.
	Secrets            int        `json:"secrets"`
	RotatedAt          *time.Time `json:"rotatedAt"`
	PreviousValidUntil *time.Time `json:"previousValidUntil"`
}

// SigningSecrets are the secrets that sign deliveries now, the newest first.
type SigningSecrets struct {
	Value []SigningSecret `json:"value"`
}

// SigningSecret is a secret in the form of Standard Webhooks.
type SigningSecret struct {
	Secret     string     `json:"secret"`
	CreatedAt  time.Time  `json:"createdAt"`
	ValidUntil *time.Time `json:"validUntil"`
}

// GetSigningSecrets responds to POST /v1/topics/{topic}/subscriptions/{subscription}/getSigningSecrets.
func (m *Handlers) GetSigningSecrets(ctx context.Context, r *SubscriptionPath) (*SigningSecrets, error) {
	sub, err := m.Parts.Subscriptions.RevealSigningSecrets(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	m.logSecretOf(ctx, r, "signing secrets of an event subscription were shown")
	return m.signingSecrets(sub), nil
}

type rotateSigningSecretRequest struct {
	SubscriptionPath
	Body RotateSigningSecretSpec
}

// RotateSigningSecretSpec has the new secret, and how long the previous ones keep signing.
type RotateSigningSecretSpec struct {
	Secret                *string `json:"secret,omitempty"`
	PreviousValidForHours *int    `json:"previousValidForHours,omitempty" minimum:"0" maximum:"168" default:"24"`
}

// RotateSigningSecret responds to POST /v1/topics/{topic}/subscriptions/{subscription}/rotateSigningSecret.
func (m *Handlers) RotateSigningSecret(ctx context.Context, r *rotateSigningSecretRequest) (*SigningSecrets, error) {
	var key []byte
	var found problems
	if r.Body.Secret != nil {
		var err error
		key, err = endpointconf.ParseSigningSecret(*r.Body.Secret)
		found.Check(err)
	}
	const most = int(endpointconf.MaxPreviousSecret / time.Hour)
	hours := optional(r.Body.PreviousValidForHours, int(previousSecretByDefault/time.Hour))
	if hours < 0 || hours > most {
		found.Value("previousValidForHours", "must be between 0 and %d, not %d", most, hours)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	sub, err := m.Parts.Subscriptions.RotateSigningSecret(ctx, r.Topic, r.Subscription, key,
		time.Duration(hours)*time.Hour)
	var invalid *policy.ValidationError
	switch {
	case errors.Is(err, catalog.ErrNotSigned):
		return nil, api.RejectConflict(api.ConflictCodeSubscriptionNotSigned,
			"deliveries of event subscription %q of topic %q are not signed: set signing.enabled to true first",
			r.Subscription, r.Topic)
	case errors.As(err, &invalid):
		return nil, api.Invalid(invalid.Field, "%s", invalid.Message)
	case err != nil:
		return nil, err
	}
	m.logSecretOf(ctx, &r.SubscriptionPath, "the signing secret of an event subscription was replaced")
	return m.signingSecrets(sub), nil
}

// liveSecrets are the secrets that sign now, by the database's clock.
func (m *Handlers) liveSecrets(s *catalog.Subscription) []endpointconf.SigningSecret {
	if s.SigningKeys == nil {
		return nil
	}
	return s.SigningKeys.Live(m.Parts.Clock.Now())
}

func (m *Handlers) signingSecrets(s *catalog.Subscription) *SigningSecrets {
	shown := &SigningSecrets{Value: []SigningSecret{}}
	for _, secret := range m.liveSecrets(s) {
		shown.Value = append(shown.Value, SigningSecret{secret.Text(), secret.CreatedAt, secret.ValidUntil})
	}
	return shown
}

func (m *Handlers) signingView(s *catalog.Subscription) Signing {
	live := m.liveSecrets(s)
	shown := Signing{Enabled: s.Signing.Enabled, Secrets: len(live)}
	if len(live) > 0 {
		shown.RotatedAt = &live[0].CreatedAt
	}
	if len(live) > 1 {
		shown.PreviousValidUntil = live[1].ValidUntil
	}
	return shown
}

// FullURL is the endpoint of an event subscription with its query.
type FullURL struct {
	EndpointURL string `json:"endpointUrl"`
}

// DeliveryAttributeList are the custom headers of an event subscription with their secret values.
type DeliveryAttributeList struct {
	Value []DeliveryAttributeView `json:"value"`
}

// RevealSubscriptionEndpoint responds to POST /v1/topics/{topic}/subscriptions/{subscription}/getFullUrl.
func (m *Handlers) RevealSubscriptionEndpoint(ctx context.Context, r *SubscriptionPath) (*FullURL, error) {
	sub, err := m.Parts.Subscriptions.RevealEndpoint(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	m.logSecretOf(ctx, r, "the endpoint of an event subscription was shown in full")
	return &FullURL{sub.EndpointURL}, nil
}

// RevealSubscriptionHeaders responds to POST /v1/topics/{topic}/subscriptions/{subscription}/getDeliveryAttributes.
func (m *Handlers) RevealSubscriptionHeaders(ctx context.Context, r *SubscriptionPath) (*DeliveryAttributeList, error) {
	sub, err := m.Parts.Subscriptions.RevealDeliveryAttributes(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	m.logSecretOf(ctx, r, "secret headers of an event subscription were shown")
	return &DeliveryAttributeList{attributesView(sub.DeliveryAttributes, true)}, nil
}

func (m *Handlers) logSecretOf(ctx context.Context, r *SubscriptionPath, what string) {
	m.logSecret(ctx, what, "topic", r.Topic, "subscription", r.Subscription)
}
