package jobs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testnode"
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
	tn := setup(t)
	e := retryAfterEndpoint(t)
	const floor, requested = 30 * time.Second, 2 * time.Minute
	copyPolicy(t, tn, policy.DefaultName, "honors", `{"honor_retry_after":true}`)
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
		subscribe(t, tn, name, e.URL+"/?after=120&row="+name, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.Behavior, s.HonorRetryAfter = row.policy, row.behavior, row.honor
		})
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(want))
	for name, gap := range want {
		requireGap(t, tn, gap, name)
	}
}

// Without a destination Event Grid has no place for dead letters: they are dropped, or retried if the table says so.
func TestDocumentedDeadLettersAreOffByDefault(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	subscribe(t, tn, "safe-2019", e.URL+"/400", under("ga-2019"))
	subscribe(t, tn, "literal-2019", e.URL+"/400", literally("ga-2019"))
	subscribe(t, tn, "literal-2018", e.URL+"/400", literally("ga-2018"))
	subscribe(t, tn, "stated-2019", e.URL+"/400",
		func(s *catalog.SubscriptionSpec) {
			literally("ga-2019")(s)
			s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
		})
	subscribe(t, tn, "safe-2021", e.URL+"/404", under("ga-2021"))
	subscribe(t, tn, "literal-2021", e.URL+"/404", literally("ga-2021"))
	subscribe(t, tn, "none-2021", e.URL+"/404", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
	subscribe(t, tn, "batch-2021", e.URL+"/404",
		func(s *catalog.SubscriptionSpec) { literally("ga-2021")(s); s.MaxEventsPerBatch = new(10) })
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 8)
	for name, state := range map[string]string{
		"safe-2019": "dead_lettered", "literal-2019": "pending", "literal-2018": "pending", "stated-2019": "dead_lettered",
		"safe-2021": "dead_lettered", "literal-2021": "dropped", "none-2021": "dropped", "batch-2021": "dropped",
	} {
		tn.BecomeRows(t, 1, "deliveries", "subscription = $1 AND state = $2 AND attempts = 1 "+
			"AND last_outcome IN ('BadRequest', 'NotFound')", name, state)
	}
	require.Equal(t, 3, tn.Rows(t, "dead_letters", ""))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'dropped' "+
		"AND reason = 'UndeliverableDueToClientError'"), "visible, with its reason")
	requireGap(t, tn, 5*time.Minute, "literal-2019")
}

// The namespace page ends held deliveries for some causes of a probation; "safe" holds them.
func TestProbationEndsOrHoldsDeliveries(t *testing.T) {
	t.Parallel()
	hold, documented := policy.ProbationHold, policy.ProbationDocumented
	rows := map[string]struct {
		change func(*catalog.SubscriptionSpec)
		want   string // of the event published during the probation
	}{
		"safe":       {under("namespace-2023"), "pending probation"},
		"documented": {literally("namespace-2023"), "dropped UndeliverableDueToProbationCausedByClientError"},
		"safe-ends": {
			func(s *catalog.SubscriptionSpec) {
				s.RetryPolicy.Policy, s.ProbationAction = "namespace-2023", &documented
			},
			"dead_lettered UndeliverableDueToProbationCausedByClientError",
		},
		"documented-not": {
			func(s *catalog.SubscriptionSpec) { literally("namespace-2023")(s); s.ProbationAction = &hold }, "pending probation",
		},
	}
	tn := setup(t)
	bad := newEndpoint(t, respondWith(http.StatusNotFound))
	for name, row := range rows {
		subscribe(t, tn, name, bad.URL, row.change)
	}
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, len(rows))
	publishOne(t, tn, "second")
	for name, row := range rows {
		tn.BecomeRows(t, 1, "deliveries", "event_id = 'second' AND concat_ws(' ', state, coalesce(hold, reason)) = $1 "+
			"AND attempts = 0 AND subscription = $2", row.want, name)
	}
	require.Len(t, bad.requests(), len(rows))
}

func TestTransportErrorsByBehavior(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "safe", closedPort, under("namespace-2023"))
	subscribe(t, tn, "literal", closedPort, literally("namespace-2023"))
	subscribe(t, tn, "retried", closedPort, func(s *catalog.SubscriptionSpec) {
		literally("namespace-2023")(s)
		s.RetryTransportErrors = new(true)
	})
	copyPolicy(t, tn, policy.DefaultName, "strict", `{}`)
	tn.Exec(t,
		"UPDATE postrider_internal.retry_policy_cells SET action = 'never' WHERE policy = 'strict' AND condition = 'socket'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	subscribe(t, tn, "strict", closedPort, under("strict"))
	subscribe(t, tn, "exhausted", closedPort,
		func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy, s.RetryTransportErrors = "strict", new(false) })
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 5)
	for name, state := range map[string]string{
		"safe": "pending", "literal": "dropped", "retried": "pending", "strict": "pending", "exhausted": "dead_lettered",
	} {
		tn.BecomeRows(t, 1, "deliveries", "subscription = $1 AND state = $2 AND last_outcome = 'SocketError'", name, state)
	}
	requireGap(t, tn, 10*time.Second, "retried")
	requireGap(t, tn, 10*time.Second, "safe")
}

// Rules are computed once per version of the catalog: a change applies to pending deliveries, on a running node.
func TestChangedBehaviorAppliesToPendingDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := retryAfterEndpoint(t)
	subscribe(t, tn, "billing", e.URL+"/?after=120", nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.Attempt(t)
	requireGap(t, tn, 2*time.Minute, "billing")
	elsewhere := tn.Beside(t, node.Options{Node: "node-2"}).System
	sub, err := elsewhere.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	changed := sub.SubscriptionSpec
	changed.Behavior = policy.BehaviorDocumented
	_, _, err = elsewhere.Subscriptions.Put(t.Context(), topicName, "billing", changed)
	require.NoError(t, err)
	testnode.Within(t, "the policy is read again", func() bool {
		rules, _ := tn.System.Cache.Snapshot().Rules(sub.ID)
		return !rules.Policy.HonorRetryAfter
	})
	travel(t, tn)
	tn.Attempt(t)
	requireGap(t, tn, 30*time.Second, "billing")
}

// A namespace topic's retention ends a delivery before its own time to live: at its next attempt, on hold, and in a
// batch; also if the retention was shortened after the publish.
func TestRetentionEndsDeliveries(t *testing.T) {
	t.Parallel()
	topic := catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents}
	tn := setupSpec(t, topic)
	copyPolicy(t, tn, "namespace-2023", "prompt", `{"expiry":"at_ttl"}`)
	e := newSwitchable(t, http.StatusInternalServerError)
	cloud := func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.EventDeliverySchema, s.RetryPolicy.EventTimeToLiveInMinutes = "prompt", event.CloudEvents,
			new(7*1440)
	}
	subscribe(t, tn, "tried", e.URL, cloud)
	subscribe(t, tn, "batched", e.URL, func(s *catalog.SubscriptionSpec) { cloud(s); s.MaxEventsPerBatch = new(10) })
	subscribe(t, tn, "default", e.URL,
		func(s *catalog.SubscriptionSpec) { cloud(s); s.RetryPolicy.EventTimeToLiveInMinutes = nil })
	subscribe(t, tn, "held", e.URL, cloud)
	subscribe(t, tn, "open", e.URL, cloud)
	pause(t, tn, "held")
	tn.Start(t)
	publish := func() {
		publishBody(t, tn, "application/cloudevents+json",
			`{"specversion":"1.0","id":"e","source":"/s","type":"t","data":{}}`)
		tn.AttemptsMade(t, 4)
	}
	publish()
	old := func() {
		tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 days' "+
			"WHERE subscription_id NOT IN (SELECT id FROM postrider_internal.event_subscriptions WHERE name = 'open')")
	}
	old()
	travel(t, tn)
	tn.AttemptsMade(t, 4)
	require.Zero(t, tn.Rows(t, "dead_letters", ""), "seven days are the default")

	elsewhere := tn.Beside(t, node.Options{Node: "node-2"}).System
	topic.EventRetentionInDays = 1
	_, _, err := elsewhere.Topics.Put(t.Context(), topicName, topic)
	require.NoError(t, err)
	require.Equal(t, 5, tn.Rows(t, "event_subscriptions", "event_time_to_live_in_minutes = 1440"))
	tn.BecomeRows(t, 1, "dead_letters", "subscription = 'held' AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	travel(t, tn)
	for _, name := range []string{"tried", "batched", "default"} {
		tn.BecomeRows(t, 1, "dead_letters", "subscription = $1 AND reason = 'TimeToLiveExceeded' AND attempts = 2", name)
	}
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'open' AND state = 'pending' AND attempts = 3")
}
