package jobs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/policy"
)

// literally selects the documented behavior of a policy.
func literally(retryPolicy string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.Behavior = retryPolicy, policy.BehaviorDocumented
	}
}

func TestRetryAfterByBehavior(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := retryAfterEndpoint(t)
	const floor, requested = 30 * time.Second, 2 * time.Minute
	b.copyPolicy(t, policy.DefaultName, "honors", `{"honor_retry_after":true}`)
	want := map[string]time.Duration{}
	for name, row := range map[string]struct {
		policy   string
		behavior policy.Behavior
		honor    *bool
		want     time.Duration
	}{
		"left-out":        {policy.DefaultName, "", nil, requested},
		"safe":            {policy.DefaultName, policy.BehaviorSafe, nil, requested},
		"safe-but-not":    {policy.DefaultName, policy.BehaviorSafe, new(false), floor},
		"documented":      {policy.DefaultName, policy.BehaviorDocumented, nil, floor},
		"documented-but":  {policy.DefaultName, policy.BehaviorDocumented, new(true), requested},
		"honors":          {"honors", policy.BehaviorDocumented, nil, requested},
		"polite-but-not":  {"honors", policy.BehaviorDocumented, new(false), floor},
		"safe-and-honors": {"honors", policy.BehaviorSafe, nil, requested},
	} {
		want[name] = row.want
		b.subscribe(t, name, e.URL+"/?after=120&row="+name, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.Behavior, s.HonorRetryAfter = row.policy, row.behavior, row.honor
		})
	}
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attemptsMade(t, len(want))
	for name, gap := range want {
		b.requireGap(t, gap, name)
	}
}

// Without a destination Event Grid has no place for dead letters: they are dropped, or retried if the table says so.
func TestDocumentedDeadLettersAreOffByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, statusOfPath)
	b.subscribe(t, "safe-2019", e.URL+"/400", under("ga-2019"))
	b.subscribe(t, "literal-2019", e.URL+"/400", literally("ga-2019"))
	b.subscribe(t, "literal-2018", e.URL+"/400", literally("ga-2018"))
	b.subscribe(t, "stated-2019", e.URL+"/400",
		func(s *catalog.SubscriptionSpec) {
			literally("ga-2019")(s)
			s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
		})
	b.subscribe(t, "safe-2021", e.URL+"/404", under("ga-2021"))
	b.subscribe(t, "literal-2021", e.URL+"/404", literally("ga-2021"))
	b.subscribe(t, "none-2021", e.URL+"/404", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
	b.subscribe(t, "batch-2021", e.URL+"/404",
		func(s *catalog.SubscriptionSpec) { literally("ga-2021")(s); s.MaxEventsPerBatch = new(10) })
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attemptsMade(t, 8)
	for name, state := range map[string]string{
		"safe-2019": "dead_lettered", "literal-2019": "pending", "literal-2018": "pending", "stated-2019": "dead_lettered",
		"safe-2021": "dead_lettered", "literal-2021": "dropped", "none-2021": "dropped", "batch-2021": "dropped",
	} {
		b.become(t, 1,
			"SELECT count(*) FROM postrider.deliveries WHERE subscription = $1 AND state = $2 AND attempts = 1 "+
				"AND last_outcome IN ('BadRequest', 'NotFound')", name, state)
	}
	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM postrider.dead_letters"))
	require.Equal(t, 3,
		b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'dropped' "+
			"AND reason = 'UndeliverableDueToClientError'"), "visible, with its reason")
	b.requireGap(t, 5*time.Minute, "literal-2019")
}

// The namespace page ends held deliveries for some causes of a probation; "safe" holds them.
func TestProbationEndsOrHoldsDeliveries(t *testing.T) {
	t.Parallel()
	hold, documented := policy.ProbationHold, policy.ProbationDocumented
	for name, row := range map[string]struct {
		change func(*catalog.SubscriptionSpec)
		want   string // of the event published during the probation
	}{
		"safe":       {under("namespace-2023"), "pending probation"},
		"documented": {literally("namespace-2023"), "dropped UndeliverableDueToProbationCausedByClientError"},
		"safe, ends": {
			func(s *catalog.SubscriptionSpec) {
				s.RetryPolicy.Policy, s.ProbationAction = "namespace-2023", &documented
			},
			"dead_lettered UndeliverableDueToProbationCausedByClientError",
		},
		"documented, not": {
			func(s *catalog.SubscriptionSpec) { literally("namespace-2023")(s); s.ProbationAction = &hold }, "pending probation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			bad := newSwitchable(t, http.StatusNotFound)
			b.subscribe(t, "billing", bad.URL, row.change)
			b.start(t, nil)
			b.publishFailing(t, 1)
			b.publishOne(t, "second")
			b.become(t, 1,
				"SELECT count(*) FROM postrider.deliveries WHERE event_id = 'second' AND concat_ws(' ', state, coalesce(hold, "+
					"reason)) = $1 AND attempts = 0", row.want)
			require.Len(t, bad.requests(), 1)
		})
	}
}

func TestTransportErrorsByBehavior(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "safe", closedPort, under("namespace-2023"))
	b.subscribe(t, "literal", closedPort, literally("namespace-2023"))
	b.subscribe(t, "retried", closedPort, func(s *catalog.SubscriptionSpec) {
		literally("namespace-2023")(s)
		s.RetryTransportErrors = new(true)
	})
	b.copyPolicy(t, policy.DefaultName, "strict", `{}`)
	b.exec(t,
		"UPDATE postrider_internal.retry_policy_cells SET action = 'never' WHERE policy = 'strict' AND condition = 'socket'")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	b.subscribe(t, "strict", closedPort, under("strict"))
	b.subscribe(t, "exhausted", closedPort,
		func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy, s.RetryTransportErrors = "strict", new(false) })
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attemptsMade(t, 5)
	for name, state := range map[string]string{
		"safe": "pending", "literal": "dropped", "retried": "pending", "strict": "pending", "exhausted": "dead_lettered",
	} {
		b.become(t, 1,
			"SELECT count(*) FROM postrider.deliveries WHERE subscription = $1 AND state = $2 AND last_outcome = 'SocketError'",
			name, state)
	}
	b.requireGap(t, 10*time.Second, "retried")
	b.requireGap(t, 10*time.Second, "safe")
}

// Rules are computed once per version of the catalog: a change applies to pending deliveries, on a running node.
func TestChangedBehaviorAppliesToPendingDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := retryAfterEndpoint(t)
	b.subscribe(t, "billing", e.URL+"/?after=120", nil)
	b.start(t, nil)
	b.publishOne(t, "e")
	b.attempt(t)
	b.requireGap(t, 2*time.Minute, "billing")
	elsewhere, _ := newStore(t, b.url, "node-2")
	sub, err := elsewhere.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	changed := sub.SubscriptionSpec
	changed.Behavior = policy.BehaviorDocumented
	_, _, err = elsewhere.Subscriptions.Put(t.Context(), topicName, "billing", changed)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		rules, _ := b.store.Cache.Snapshot().Rules(sub.ID)
		return !rules.Policy.HonorRetryAfter
	}, waitTimeout, tick)
	b.travel(t)
	b.attempt(t)
	b.requireGap(t, 30*time.Second, "billing")
}

// A namespace topic's retention ends a delivery before its own time to live: at its next attempt, on hold, and in a
// batch; also if the retention was shortened after the publish.
func TestRetentionEndsDeliveries(t *testing.T) {
	t.Parallel()
	topic := catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents}
	b := setupSpec(t, topic)
	b.copyPolicy(t, "namespace-2023", "prompt", `{"expiry":"at_ttl"}`)
	e := newSwitchable(t, http.StatusInternalServerError)
	cloud := func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.EventDeliverySchema, s.RetryPolicy.EventTimeToLiveInMinutes = "prompt", event.CloudEvents,
			new(7*1440)
	}
	b.subscribe(t, "tried", e.URL, cloud)
	b.subscribe(t, "batched", e.URL, func(s *catalog.SubscriptionSpec) { cloud(s); s.MaxEventsPerBatch = new(10) })
	b.subscribe(t, "default", e.URL,
		func(s *catalog.SubscriptionSpec) { cloud(s); s.RetryPolicy.EventTimeToLiveInMinutes = nil })
	b.subscribe(t, "held", e.URL, cloud)
	b.subscribe(t, "open", e.URL, cloud)
	b.pause(t, "held")
	b.start(t, nil)
	publish := func() {
		b.publish(t, "application/cloudevents+json", `{"specversion":"1.0","id":"e","source":"/s","type":"t","data":{}}`)
		b.attemptsMade(t, 4)
	}
	publish()
	old := func() {
		b.exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 days' "+
			"WHERE subscription_id NOT IN (SELECT id FROM postrider_internal.event_subscriptions WHERE name = 'open')")
	}
	old()
	b.travel(t)
	b.attemptsMade(t, 4)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider.dead_letters"), "seven days are the default")

	elsewhere, _ := newStore(t, b.url, "node-2")
	topic.EventRetentionInDays = 1
	_, _, err := elsewhere.Topics.Put(t.Context(), topicName, topic)
	require.NoError(t, err)
	require.Equal(t, 5,
		b.count(t, "SELECT count(*) FROM postrider.event_subscriptions WHERE event_time_to_live_in_minutes = 1440"))
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'held' "+
		"AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	b.travel(t)
	for _, name := range []string{"tried", "batched", "default"} {
		b.become(t, 1,
			"SELECT count(*) FROM postrider.dead_letters WHERE subscription = $1 AND reason = 'TimeToLiveExceeded' "+
				"AND attempts = 2", name)
	}
	b.become(t, 1,
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'open' AND state = 'pending' AND attempts = 3")
}
