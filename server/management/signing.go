package management

import (
	"context"
	"errors"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// previousSecretByDefault is how long a replaced secret goes on signing where nothing else is asked for.
const previousSecretByDefault = 24 * time.Hour

// GetSigningSecrets answers POST /v1/topics/{topic}/subscriptions/{subscription}/getSigningSecrets.
func (m *Handlers) GetSigningSecrets(
	ctx context.Context, r api.GetSigningSecretsRequestObject,
) (api.GetSigningSecretsResponseObject, error) {
	sub, err := reveal(ctx, r.Topic, r.Subscription, m.Parts.Subscriptions.RevealSigningSecrets)
	if err != nil {
		return nil, err
	}
	return api.GetSigningSecrets200JSONResponse(m.signingSecrets(sub)), nil
}

// RotateSigningSecret answers POST /v1/topics/{topic}/subscriptions/{subscription}/rotateSigningSecret.
func (m *Handlers) RotateSigningSecret(
	ctx context.Context, r api.RotateSigningSecretRequestObject,
) (api.RotateSigningSecretResponseObject, error) {
	key, previous, err := newSecret(r.Body)
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Topic) || !api.Storable(r.Subscription) {
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	}
	sub, err := m.Parts.Subscriptions.RotateSigningSecret(ctx, r.Topic, r.Subscription, key, previous)
	var refused *policy.ValidationError
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	case errors.Is(err, catalog.ErrNotSigned):
		return nil, api.RefuseConflict(api.ConflictCodeSubscriptionNotSigned,
			"deliveries of event subscription %q of topic %q are not signed: put it with signing.enabled true first",
			r.Subscription, r.Topic)
	case errors.As(err, &refused):
		return nil, api.Invalid(refused.Field, "%s", refused.Message)
	case err != nil:
		return nil, err
	}
	return api.RotateSigningSecret200JSONResponse(m.signingSecrets(sub)), nil
}

// newSecret reads what is asked for: the key, nil for one that is made here, and how long the secrets so far go on
// signing.
func newSecret(b *api.RotateSigningSecretSettings) (key []byte, previous time.Duration, err error) {
	if b == nil {
		return nil, previousSecretByDefault, nil
	}
	var found problems
	if b.Secret != nil {
		key, err = policy.ParseSigningSecret(*b.Secret)
		found.Check(err)
	}
	const most = int(policy.MaxPreviousSecret / time.Hour)
	hours := optional(b.PreviousValidForHours, int(previousSecretByDefault/time.Hour))
	if hours < 0 || hours > most {
		found.Value("previousValidForHours", "must be between 0 and %d, not %d", most, hours)
	}
	return key, time.Duration(hours) * time.Hour, found.Err()
}

// liveSecrets are those that sign now, by the database's clock.
func (m *Handlers) liveSecrets(s *catalog.Subscription) []policy.SigningSecret {
	if s.SigningKeys == nil {
		return nil
	}
	return s.SigningKeys.Live(m.Parts.Clock.Now())
}

func (m *Handlers) signingSecrets(s *catalog.Subscription) api.SigningSecrets {
	shown := api.SigningSecrets{Value: []api.SigningSecret{}}
	for _, secret := range m.liveSecrets(s) {
		shown.Value = append(shown.Value, api.SigningSecret{
			Secret: secret.Text(), CreatedAt: secret.CreatedAt.UTC(), ValidUntil: utcOrNull(secret.ValidUntil),
		})
	}
	return shown
}

// signingJSON shows no secret.
func (m *Handlers) signingJSON(s *catalog.Subscription) api.Signing {
	live := m.liveSecrets(s)
	shown := api.Signing{Enabled: s.Signing.Enabled, Secrets: len(live)}
	if len(live) > 0 {
		shown.RotatedAt = utcOrNull(&live[0].CreatedAt)
	}
	if len(live) > 1 {
		shown.PreviousValidUntil = utcOrNull(live[1].ValidUntil)
	}
	return shown
}
