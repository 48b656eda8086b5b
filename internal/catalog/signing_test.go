package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func signed(s *catalog.SubscriptionSpec) { s.Signing.Enabled = true }

func TestRotateSigningSecret(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	made := tn.Subscribe(t, "orders", "billing", signed)
	require.Len(t, made.SigningKeys.Secrets, 1)
	require.Len(t, made.SigningKeys.Secrets[0].Key, 32)
	require.WithinDuration(t, tn.System.Clock.Now(), made.SigningKeys.Secrets[0].CreatedAt, time.Minute)
	require.Equal(t, made.SigningKeys, tn.Subscribe(t, "orders", "billing", signed).SigningKeys,
		"putting it again keeps it")

	given := []byte("a secret of one's own, 32 bytes.")
	rotated, err := tn.System.Subscriptions.RotateSigningSecret(t.Context(), "orders", "billing", given, time.Hour)
	require.NoError(t, err)
	require.Equal(t, given, rotated.SigningKeys.Secrets[0].Key)
	require.Equal(t, made.SigningKeys.Secrets[0].Key, rotated.SigningKeys.Secrets[1].Key)
	require.Equal(t, rotated.SigningKeys.Secrets[0].CreatedAt.Add(time.Hour), *rotated.SigningKeys.Secrets[1].ValidUntil)
	cached, ok := tn.System.Cache.Snapshot().Subscription(made.ID)
	require.True(t, ok)
	require.Equal(t, rotated.SigningKeys, cached.SigningKeys, "this node knows it at once")
	require.Greater(t, rotated.Version, made.Version, "and the others by the version")

	var invalid *policy.ValidationError
	_, err = tn.System.Subscriptions.RotateSigningSecret(t.Context(), "orders", "billing", given, time.Hour)
	require.ErrorAs(t, err, &invalid)
	tn.Subscribe(t, "orders", "plain", nil)
	_, err = tn.System.Subscriptions.RotateSigningSecret(t.Context(), "orders", "plain", nil, 0)
	require.ErrorIs(t, err, catalog.ErrNotSigned)
	_, err = tn.System.Subscriptions.RotateSigningSecret(t.Context(), "orders", "never", nil, 0)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	again, err := tn.System.Subscriptions.Get(t.Context(), "orders", "billing")
	require.NoError(t, err)
	require.Equal(t, rotated.SigningKeys, again.SigningKeys, "nothing half-written")
}

func TestPrintedSubscriptionsShowNoSecret(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "billing", signed)
	shown := fmt.Sprintf("%v %+v %#v", sub, sub, sub)
	for _, secret := range []string{sub.SigningKeys.Secrets[0].Text(), fmt.Sprintf("%d",
		sub.SigningKeys.Secrets[0].Key), fmt.Sprintf("%#v", sub.SigningKeys.Secrets[0].Key)} {
		require.NotContains(t, shown, secret)
	}
}

// What was sealed for another column, or with another key, is no secret to sign with.
func TestSigningSecretsAreBoundToTheirColumn(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", signed)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET signing_sealed = secrets_sealed")
	_, err := tn.System.Subscriptions.Get(t.Context(), "orders", "billing")
	require.ErrorContains(t, err, "event_subscriptions.signing_sealed")
}

// A batch's id must not come again, not even from a database that was restored and counts on from where it was.
func TestMessageIDOfBatches(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 3, 0, 0, 1000, time.UTC)
	id := func(number int64, at time.Time) string {
		return (&queue.Work{BatchID: number, BatchCreatedAt: at}).MessageID()
	}
	require.Equal(t, "batch-7-1795316400000001", id(7, at))
	require.Equal(t, id(7, at), id(7, at.In(time.FixedZone("", 3600))))
	require.NotEqual(t, id(7, at), id(7, at.Add(time.Microsecond)))
	require.NotEqual(t, id(7, at), id(8, at))
}
