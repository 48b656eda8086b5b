package catalog_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

// Matching stops at the moment itself, where no worker runs too, and where another node's catalog is the older one.
func TestExpirationStopsMatching(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	at := tn.System.Clock.Now().Add(700 * time.Millisecond)
	tn.Subscribe(t, "orders", "brief", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at })
	tn.Subscribe(t, "orders", "lasting", nil)
	advanced := filter.Filter{AdvancedFilters: []filter.AdvancedFilter{{OperatorType: "IsNotNull", Key: "subject"}}}
	require.Equal(t, []int{2}, tn.Publish(t, "orders", "a", 1).Matched)
	testnode.Within(t, `!tn.System.Clock.Now().Before(at)`, func() bool { return !tn.System.Clock.Now().Before(at) })
	require.Equal(t, []int{1}, tn.Publish(t, "orders", "b", 1).Matched)
	require.Equal(t, 2, tn.Rows(t, "event_subscriptions", ""), "it is not deleted yet")
	tn.Subscribe(t, "orders", "advanced", func(s *catalog.SubscriptionSpec) { s.Filter = advanced })
	require.Equal(t, []int{2}, tn.Publish(t, "orders", "c", 1).Matched, "with filters that are made ready, too")
	later := at.Add(time.Hour)
	tn.Subscribe(t, "orders", "brief", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &later })
	require.Equal(t, []int{3}, tn.Publish(t, "orders", "d", 1).Matched, "put again with a later moment, it goes on")
}

// Two nodes that find it at once delete it once.
func TestExpireSubscriptions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	at := tn.System.Clock.Now().Add(3 * time.Second)
	tn.Subscribe(t, "orders", "alone", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at })
	tn.Subscribe(t, "orders", "batched",
		func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC, s.MaxEventsPerBatch = &at, new(2) })
	tn.Subscribe(t, "orders", "lasting", nil)
	tn.Publish(t, "orders", "e", 3)
	require.NoError(t, tn.System.Subscriptions.Expire(t.Context()))
	require.Equal(t, 3, tn.Rows(t, "event_subscriptions", ""), "their time has not come")
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	testnode.Within(t, "the time comes", func() bool { return tn.System.Clock.Now().After(at.Add(50 * time.Millisecond)) })
	testnode.AtOnce(2, func(i int) {
		assert.NoError(t, []*node.System{tn.System, other}[i].Subscriptions.Expire(t.Context()))
	})
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", ""))
	require.Equal(t, 6, tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionExpired'"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND subscription = 'lasting'"))
	require.Equal(t, 6, tn.Count(t, "SELECT coalesce(sum(count), 0)::int FROM (SELECT (unnest(entries)).* "+
		"FROM postrider_internal.rollup_deltas) r WHERE detail = 'EventSubscriptionExpired'"))
	require.Equal(t, 2, tn.Rows(t, "audit",
		"action = 'subscription_expired' AND topic IS NOT NULL AND subscription IS NOT NULL"))
}

func TestRulesFollowPoliciesAndSubscriptions(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	topic := catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents}
	_, _, err := tn.System.Topics.Put(t.Context(), "shop", topic)
	require.NoError(t, err)
	tn.Subscribe(t, "shop", "first", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "namespace-2023" })
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	sub := tn.Subscribe(t, "shop", "second", func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "namespace-2023", new(7*1440)
	})
	rules := func() policy.Rules {
		require.NoError(t, other.Cache.Reload(t.Context()))
		r, known := other.Cache.Snapshot().Rules(sub.ID)
		require.True(t, known)
		return r
	}
	require.Equal(t, 7*24*time.Hour, rules().Limits.TTL)
	topic.EventRetentionInDays = 2
	changed, keys, err := tn.System.Topics.Put(t.Context(), "shop", topic)
	require.NoError(t, err)
	require.Nil(t, keys)
	require.Equal(t, 2, changed.EventRetentionInDays)
	require.Equal(t, 48*time.Hour, rules().Limits.TTL, "the topic was changed, not the event subscription")

	own, _ := policy.Builtin("namespace-2023")
	own.Name, own.BuiltIn, own.MaxAttempts.Default = "mine", false, 7
	_, _, err = tn.System.Policies.Put(t.Context(), &own)
	require.NoError(t, err)
	sub = tn.Subscribe(t, "shop", "second", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "mine" })
	require.Equal(t, 7, rules().Limits.MaxAttempts)
	own.MaxAttempts.Default = 4
	_, _, err = tn.System.Policies.Put(t.Context(), &own)
	require.NoError(t, err)
	require.Equal(t, 4, rules().Limits.MaxAttempts, "the policy was changed, not the event subscription")
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "shop", "second"))
	require.NoError(t, other.Cache.Reload(t.Context()))
	_, known := other.Cache.Snapshot().Rules(sub.ID)
	require.False(t, known)
}

func TestConditions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	put := func(when ...postgres.Condition) error {
		_, _, err := tn.System.Subscriptions.Put(t.Context(), "orders", "billing", testnode.SubscriptionSpec(), when...)
		return err
	}
	require.ErrorIs(t, put(postgres.Condition{Present: true}), postgres.ErrPrecondition)
	require.ErrorIs(t, put(postgres.Condition{Versions: []postgres.Version{1}}), postgres.ErrPrecondition)
	require.NoError(t, put(postgres.Condition{Absent: true}))
	require.ErrorIs(t, put(postgres.Condition{Absent: true}), postgres.ErrPrecondition)
	sub, err := tn.System.Subscriptions.Get(t.Context(), "orders", "billing")
	require.NoError(t, err)
	require.ErrorIs(t, put(postgres.Condition{Versions: []postgres.Version{}}), postgres.ErrPrecondition)
	require.ErrorIs(t, put(postgres.Condition{}, postgres.Condition{Versions: []postgres.Version{sub.Version + 1}}),
		postgres.ErrPrecondition)
	require.NoError(t,
		put(postgres.Condition{Present: true}, postgres.Condition{Versions: []postgres.Version{1, sub.Version}}))
	require.ErrorIs(t, put(postgres.Condition{Versions: []postgres.Version{sub.Version}}), postgres.ErrPrecondition,
		"it has another by now")
	require.ErrorIs(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "billing",
		postgres.Condition{Versions: []postgres.Version{sub.Version}}), postgres.ErrPrecondition)
	require.ErrorIs(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "nothing", postgres.Condition{Present: true}),
		postgres.ErrNotFound)
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", ""))

	sub, err = tn.System.Subscriptions.Get(t.Context(), "orders", "billing")
	require.NoError(t, err)
	var done atomic.Int64
	testnode.AtOnce(8, func(int) {
		if put(postgres.Condition{Versions: []postgres.Version{sub.Version}}) == nil {
			done.Add(1)
		}
	})
	require.EqualValues(t, 1, done.Load(), "of eight that saw the same version")
}
