package catalog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

func secretHeader(name string, value *string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic,
		AttributeProperties: endpointconf.AttributeProperties{Value: value, IsSecret: true},
	}
}

func TestDeliveryAttributesAreSealed(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	list := []endpointconf.DeliveryAttribute{
		secretHeader("X-Hidden-Name", new("hidden-value")),
		{Name: "X-B", Type: endpointconf.AttributeDynamic, AttributeProperties: endpointconf.AttributeProperties{
			SourceField: "data.system",
		}},
	}
	with := func(list []endpointconf.DeliveryAttribute) func(*catalog.SubscriptionSpec) {
		return func(s *catalog.SubscriptionSpec) { s.DeliveryAttributes = list }
	}
	sub := tn.Subscribe(t, "orders", "billing", with(list))
	require.Equal(t, list, sub.DeliveryAttributes)
	require.NotNil(t, sub.Headers)
	require.Equal(t, "say ***", sub.Secrets.Redact("say hidden-value"))
	cached, ok := tn.System.Cache.Snapshot().Subscription(sub.ID)
	require.True(t, ok)
	require.Equal(t, list, cached.DeliveryAttributes)

	const column = "SELECT secrets_sealed FROM postrider_internal.event_subscriptions WHERE name = 'billing' " +
		"AND deleted_at IS NULL"
	sealed := testnode.Value[[]byte](t, tn, column)
	for _, part := range []string{"X-Hidden-Name", "hidden-value", "data.system"} {
		require.NotContains(t, string(sealed), part)
	}
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	opened, err := sealer.Open("event_subscriptions.secrets_sealed", sealed)
	require.NoError(t, err)
	require.Contains(t, opened, "hidden-value")
	_, err = sealer.Open("event_subscriptions.signing_sealed", sealed)
	require.Error(t, err, "it opens as its own column only")

	unknown := []endpointconf.DeliveryAttribute{secretHeader("x-hidden-name", nil)}
	kept := tn.Subscribe(t, "orders", "billing", with(unknown))
	require.Equal(t, []endpointconf.DeliveryAttribute{secretHeader("x-hidden-name", new("hidden-value"))},
		kept.DeliveryAttributes)

	var mistake *policy.ValidationError
	s := testnode.SubscriptionSpec()
	s.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-Other", nil)}
	_, _, err = tn.System.Subscriptions.Put(t.Context(), "orders", "billing", s)
	require.ErrorAs(t, err, &mistake)
	_, _, err = tn.System.Subscriptions.Put(t.Context(), "orders", "new-one", s)
	require.ErrorAs(t, err, &mistake)

	none := tn.Subscribe(t, "orders", "billing", nil)
	require.Empty(t, none.DeliveryAttributes)
	require.Nil(t, none.Headers)
}

// A replacement keeps the secrets that are stored when it commits, not those that it has read.
func TestSecretIsKeptAsItIsStored(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for _, value := range []string{"first", "second"} {
		tn.Subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
			s.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-A", &value)}
		})
	}
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	s := testnode.SubscriptionSpec()
	s.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-A", nil)}
	sub, made, err := other.Subscriptions.Put(t.Context(), "orders", "billing", s)
	require.NoError(t, err)
	require.False(t, made)
	require.Equal(t, "second", *sub.DeliveryAttributes[0].Value)
}

func TestRevealWritesTheAuditFirst(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", nil)
	carol := access.WithActor(t.Context(), access.Actor{Name: "carol", Address: "192.0.2.1"})
	for action, reveal := range map[string]func(context.Context, string, string) (*catalog.Subscription, error){
		"endpoint_url_shown":        tn.System.Subscriptions.RevealEndpoint,
		"delivery_attributes_shown": tn.System.Subscriptions.RevealDeliveryAttributes,
	} {
		const rows = `SELECT count(*) FROM postrider.audit WHERE action = $1 AND actor = 'carol' AND address = '192.0.2.1'
			AND topic = 'orders' AND subscription = 'billing' AND details = '{}' AND at > now() - interval '1 minute'`
		sub, err := reveal(carol, "orders", "billing")
		require.NoError(t, err)
		require.Equal(t, "https://example.com/hook?secret=1", sub.EndpointURL)
		require.Equal(t, 1, tn.Count(t, rows, action))
		require.ErrorIs(t, testnode.ErrorOf(reveal(carol, "orders", "never")), postgres.ErrNotFound)
		_, err = reveal(carol, "never", "billing")
		require.ErrorIs(t, err, postgres.ErrNotFound)
		require.Equal(t, 1, tn.Count(t, rows, action))
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.audit ADD CONSTRAINT full_now CHECK (false) NOT VALID")
	sub, err := tn.System.Subscriptions.RevealEndpoint(carol, "orders", "billing")
	require.ErrorContains(t, err, "full_now")
	require.Nil(t, sub)
	keys, err := tn.System.Topics.Keys(carol, "orders")
	require.ErrorContains(t, err, "full_now")
	require.Nil(t, keys)
}

// A change whose audit cannot be written is not made.
func TestNoChangeWithoutItsAudit(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "empty")
	tn.Subscribe(t, "orders", "billing", nil)
	mine, ok := tn.System.Cache.Snapshot().Policy(policy.DefaultName)
	require.True(t, ok)
	own := *mine
	own.Name, own.BuiltIn = "mine", false
	_, _, err := tn.System.Policies.Put(t.Context(), &own)
	require.NoError(t, err)
	tn.Exec(t, "ALTER TABLE postrider_internal.audit ADD CONSTRAINT full_now CHECK (false) NOT VALID")
	const everything = `SELECT md5(string_agg(x, '|' ORDER BY x)) FROM (SELECT t::text AS x
		    FROM postrider_internal.topics t
		UNION ALL SELECT s::text FROM postrider_internal.event_subscriptions s UNION ALL SELECT p::text
		FROM postrider_internal.retry_policies p
		UNION ALL SELECT st::text FROM postrider_internal.event_subscription_states st) all_rows`
	state := func() (sum string) {
		require.NoError(t, tn.Pool.QueryRow(t.Context(), everything).Scan(&sum))
		return sum
	}
	before := state()
	for name, change := range map[string]func(context.Context) error{
		"PutTopic": func(ctx context.Context) error {
			_, _, err := tn.System.Topics.Put(ctx, "another",
				catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: "EventGridSchema"})
			return err
		},
		"DeleteTopic": func(ctx context.Context) error { return tn.System.Topics.Delete(ctx, "empty") },
		"RegenerateTopicKey": func(ctx context.Context) error {
			_, err := tn.System.Topics.RegenerateKey(ctx, "orders", catalog.Key1)
			return err
		},
		"SetTopicKeys": func(ctx context.Context) error {
			return tn.System.Topics.SetKeys(ctx, "orders", catalog.AccessKeys{Key1: "a", Key2: "b"})
		},
		"PutSubscription": func(ctx context.Context) error {
			_, _, err := tn.System.Subscriptions.Put(ctx, "orders", "billing", testnode.SubscriptionSpec())
			return err
		},
		"DeleteSubscription": func(ctx context.Context) error {
			return tn.System.Subscriptions.Delete(ctx, "orders", "billing")
		},
		"PauseSubscription": func(ctx context.Context) error {
			_, err := tn.System.Holds.Pause(ctx, "orders", "billing", nil)
			return err
		},
		"ResumeSubscription": func(ctx context.Context) error {
			_, err := tn.System.Holds.Resume(ctx, "orders", "billing")
			return err
		},
		"ReleaseSubscription": func(ctx context.Context) error {
			_, err := tn.System.Holds.Release(ctx, "orders", "billing")
			return err
		},
		"PutPolicy":    func(ctx context.Context) error { _, _, err := tn.System.Policies.Put(ctx, &own); return err },
		"DeletePolicy": func(ctx context.Context) error { return tn.System.Policies.Delete(ctx, "mine") },
	} {
		require.ErrorContains(t, change(t.Context()), "full_now", name)
		require.Equal(t, before, state(), name)
	}
}

func TestActorWithoutARequest(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	require.Equal(t, 1, tn.Rows(t, "audit",
		"actor = 'postrider' AND address IS NULL AND action = 'topic_created' AND subscription IS NULL"))
}
