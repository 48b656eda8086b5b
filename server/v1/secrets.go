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
	// Number of secrets that sign now, at most 3.
	Secrets int `json:"secrets"`
	// When the newest secret was set; null without signing.
	RotatedAt *time.Time `json:"rotatedAt"`
	// Until when the second newest secret signs; null without one.
	PreviousValidUntil *time.Time `json:"previousValidUntil"`
}

// SigningSecrets are the secrets that sign now.
type SigningSecrets struct {
	// At most three secrets, the newest first.
	Value []SigningSecret `json:"value"`
}

// SigningSecret is a signing secret.
type SigningSecret struct {
	// Secret in the form of Standard Webhooks.
	Secret string `json:"secret"`
	// When it was set.
	CreatedAt time.Time `json:"createdAt"`
	// Until when it signs; null for the newest.
	ValidUntil *time.Time `json:"validUntil"`
}

// GetSigningSecrets shows the signing secrets.
//
// Returns the secrets that sign deliveries; an empty list without signing. The log records the request without the
// secrets.
//
// The newest secret is the first.
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

// RotateSigningSecretSpec is a new signing secret.
type RotateSigningSecretSpec struct {
	// Secret: `whsec_` and the padded base64 of 24 to 64 random bytes; by default generated with 32 bytes.
	Secret *string `json:"secret,omitempty"`
	// Hours for which the previous secrets keep signing, unless they end sooner. Three secrets can sign; with three, it
	// must be 0.
	PreviousValidForHours *int `json:"previousValidForHours,omitempty" minimum:"0" maximum:"168" default:"24"`
}

// RotateSigningSecret replaces the signing secret.
//
// Adds a new secret. The previous one keeps signing for `previousValidForHours`, so that you can update the receiver
// after the response.
//
// Requests that begin within a second of the response may lack the new signature. The response is 409 without signing.
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

// FullURL is the full endpoint URL.
type FullURL struct {
	// The URL with its query string. Empty for another destination than WebHook, whose keys are never shown.
	EndpointURL string `json:"endpointUrl"`
}

// DeliveryAttributeList are custom headers with secret values.
type DeliveryAttributeList struct {
	// The headers in their order.
	Value []DeliveryAttributeView `json:"value"`
}

// RevealSubscriptionEndpoint shows the full endpoint URL.
//
// Returns the endpoint URL with its query string, which often has a secret. `postrider.audit` records the request.
func (m *Handlers) RevealSubscriptionEndpoint(ctx context.Context, r *SubscriptionPath) (*FullURL, error) {
	sub, err := m.Parts.Subscriptions.RevealEndpoint(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	m.logSecretOf(ctx, r, "the endpoint of an event subscription was shown in full")
	return &FullURL{sub.EndpointURL}, nil
}

// RevealSubscriptionHeaders shows custom headers with their secrets.
//
// Returns the custom headers of an event subscription, secret values included. `postrider.audit` records the request.
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
