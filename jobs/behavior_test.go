package jobs_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/policy"
)

// documented selects the documented behavior of a policy.
func documented(retryPolicy string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.Behavior = retryPolicy, policy.BehaviorDocumented
	}
}

// Without a destination Event Grid has no place for dead letters: they are dropped, or retried if the table says so.
// Transport errors of namespace-2023 are retried under behavior safe.
func TestDocumentedBehavior(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	copyPolicy(t, tn, policy.DefaultName, "strict", `{}`)
	tn.Exec(t,
		"UPDATE postrider_internal.retry_policy_cells SET action = 'never' WHERE policy = 'strict' AND condition = 'socket'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	retryingTransportErrors := func(retry bool) func(*catalog.SubscriptionSpec) {
		return func(s *catalog.SubscriptionSpec) { s.RetryTransportErrors = &retry }
	}
	inRows := func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
	}
	rows := map[string]struct {
		url    string
		change func(*catalog.SubscriptionSpec)
		want   string // state, outcome, and reason
	}{
		"safe-2019":    {e.URL + "/400", under("ga-2019"), "dead_lettered BadRequest UndeliverableDueToHttpBadRequest"},
		"literal-2019": {e.URL + "/400", documented("ga-2019"), "pending BadRequest"},
		"literal-2018": {e.URL + "/400", documented("ga-2018"), "pending BadRequest"},
		"stated-2019": {
			e.URL + "/400", both(documented("ga-2019"), inRows), "dead_lettered BadRequest UndeliverableDueToHttpBadRequest",
		},
		"safe-2021":    {e.URL + "/404", under("ga-2021"), "dead_lettered NotFound UndeliverableDueToClientError"},
		"literal-2021": {e.URL + "/404", documented("ga-2021"), "dropped NotFound UndeliverableDueToClientError"},
		"none-2021":    {e.URL + "/404", dropping, "dropped NotFound UndeliverableDueToClientError"},
		"batch-2021": {
			e.URL + "/404", both(documented("ga-2021"), batching(10, 64)), "dropped NotFound UndeliverableDueToClientError",
		},
		"socket-safe":    {closedPort, under("namespace-2023"), "pending SocketError"},
		"socket-literal": {closedPort, documented("namespace-2023"), "dropped SocketError UndeliverableDueToClientError"},
		"socket-retried": {
			closedPort, both(documented("namespace-2023"), retryingTransportErrors(true)), "pending SocketError",
		},
		"socket-strict": {closedPort, under("strict"), "pending SocketError"},
		"socket-exhausted": {
			closedPort, both(under("strict"), retryingTransportErrors(false)),
			"dead_lettered SocketError UndeliverableDueToClientError",
		},
	}
	for name, row := range rows {
		subscribe(t, tn, name, row.url, row.change)
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(rows))
	for name, row := range rows {
		require.Equal(t, row.want, tn.Text(t, `SELECT concat_ws(' ', state, last_outcome, reason) FROM postrider.deliveries
			WHERE subscription = $1 AND attempts = 1`, name), name)
	}
	require.Equal(t, 4, tn.Rows(t, "dead_letters", ""))
	requireGap(t, tn, 5*time.Minute, "literal-2019")
	requireGap(t, tn, 10*time.Second, "socket-retried")
	requireGap(t, tn, 10*time.Second, "socket-safe")
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
	makeDue(t, tn)
	tn.AttemptsMade(t, 4)
	require.Zero(t, tn.Rows(t, "dead_letters", ""), "seven days are the default")

	elsewhere := tn.Beside(t, node.Options{Node: "node-2"}).System
	topic.EventRetentionInDays = 1
	_, _, err := elsewhere.Topics.Put(t.Context(), topicName, topic)
	require.NoError(t, err)
	require.Equal(t, 5, tn.Rows(t, "event_subscriptions", "event_time_to_live_in_minutes = 1440"))
	tn.BecomeRows(t, 1, "dead_letters", "subscription = 'held' AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	makeDue(t, tn)
	for _, name := range []string{"tried", "batched", "default"} {
		tn.BecomeRows(t, 1, "dead_letters", "subscription = $1 AND reason = 'TimeToLiveExceeded' AND attempts = 2", name)
	}
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'open' AND state = 'pending' AND attempts = 3")
}

// retryAfterEndpoint responds with 503 and the Retry-After of its query string.
func retryAfterEndpoint(t *testing.T) *endpoint {
	t.Helper()
	return newEndpoint(t, func(w http.ResponseWriter, r request) {
		u, _ := url.Parse(r.uri)
		w.Header().Set("Retry-After", u.Query().Get("after"))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
}

func TestRetryAfterMovesTheNextAttempt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := retryAfterEndpoint(t)
	const floor, requested = 30 * time.Second, 2 * time.Minute // floor: of 503 under ga-2021
	copyPolicy(t, tn, policy.DefaultName, "honors", `{"honorRetryAfter": true}`)
	rows := map[string]struct {
		after    string
		policy   string
		behavior policy.Behavior
		honor    *bool
		want     time.Duration
	}{
		"seconds":          {"120", policy.DefaultName, "", nil, requested},
		"a-day":            {"86400", policy.DefaultName, "", nil, time.Hour}, // the cap
		"less-than-policy": {"5", policy.DefaultName, "", nil, floor},
		"garbage":          {"soon", policy.DefaultName, "", nil, floor},
		"absent":           {"", policy.DefaultName, "", nil, floor},
		"safe":             {"120", policy.DefaultName, policy.BehaviorSafe, nil, requested},
		"safe-but-not":     {"120", policy.DefaultName, policy.BehaviorSafe, new(false), floor},
		"documented":       {"120", policy.DefaultName, policy.BehaviorDocumented, nil, floor},
		"documented-but":   {"120", policy.DefaultName, policy.BehaviorDocumented, new(true), requested},
		"honors":           {"120", "honors", policy.BehaviorDocumented, nil, requested},
		"polite-but-not":   {"120", "honors", policy.BehaviorDocumented, new(false), floor},
		"safe-and-honors":  {"120", "honors", policy.BehaviorSafe, nil, requested},
	}
	for name, row := range rows {
		subscribe(t, tn, name, e.URL+"/?row="+name+"&after="+row.after, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.Behavior, s.HonorRetryAfter = row.policy, row.behavior, row.honor
		})
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	subscribe(t, tn, "date", e.URL+"/?after="+url.QueryEscape(at.Format(http.TimeFormat)), nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(rows)+1)
	for name, row := range rows {
		requireGap(t, tn, row.want, name)
	}
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'date' "+
		"AND next_attempt_at BETWEEN $1::timestamptz - interval '1 ms' AND $1::timestamptz + interval '1 ms'", at))
	const explained = "retry_after_ms IS NOT NULL AND why LIKE $1"
	require.Equal(t, 7, tn.Rows(t, "delivery_attempts", explained, "%Retry-After requests%"), "only if it decided")
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", explained, "%Retry-After requests 24 h, capped at 1 h; lowers%"))
}

// However long an endpoint's Retry-After, a last attempt is made before the time to live ends.
func TestRetryAfterNeverOutlivesTheTimeToLive(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := retryAfterEndpoint(t)
	for _, p := range policy.Builtins() {
		subscribe(t, tn, p.Name, e.URL+"/?after=2000000000&policy="+p.Name, func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = p.Name, new(10)
		})
	}
	n := len(policy.Builtins())
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, n)
	require.Equal(t, n,
		tn.Count(t, `SELECT count(*) FROM postrider.deliveries d JOIN postrider.retry_policies p ON p.name = d.subscription
		WHERE d.state = 'pending' AND d.next_attempt_at = d.time_to_live_since + interval '10 minutes' -
		    make_interval(secs => p.ack_timeout_seconds)`))
	require.Equal(t, n, tn.Rows(t, "delivery_attempts", "why LIKE '%, shortened for a last attempt before the delivery "+
		"ends; lowers%'"))
	require.Equal(t, n, makeDue(t, tn))
	tn.AttemptsMade(t, n)
	testnode.Within(t, "all deliveries end", func() bool {
		makeDue(t, tn)
		return tn.Count(t, "SELECT count(*) FROM postrider.dead_letters WHERE reason = 'TimeToLiveExceeded'") == n
	})
	require.Zero(t, tn.Rows(t, "dead_letters", "attempts NOT BETWEEN 2 AND 3 "+
		"OR last_outcome <> 'Busy'"), "60 s before its end a delivery may have time for a third")
}

// A hold starts, and ends what is published during it, by the result of the failed attempt, and by no other cell of the
// table. The namespace page ends held deliveries for some causes; "safe" holds them.
func TestHoldFollowsTheResult(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	safe, literal := under("namespace-2023"), documented("namespace-2023")
	current := documented("ga-2026")
	azure := func(s *catalog.SubscriptionSpec) { s.EndpointKind = policy.KindAzureResource }
	withoutToken := func(s *catalog.SubscriptionSpec) {
		s.Connection = endpointconf.Connection{
			OAuth2: &endpointconf.OAuth2{TokenURL: closedPort, ClientID: "id", ClientSecret: "secret"},
		}
	}
	holds, ends := policy.ProbationHold, policy.ProbationDocumented
	action := func(of *policy.ProbationAction) func(*catalog.SubscriptionSpec) {
		return func(s *catalog.SubscriptionSpec) { s.ProbationAction = of }
	}
	const ended, waits = " UndeliverableDueToProbationCausedByClientError 0", "pending probation 0"
	rows := map[string]struct {
		change func(*catalog.SubscriptionSpec)
		url    string
		want   string // state, hold or reason, and attempts of the second event
	}{
		"404":                       {literal, e.URL + "/404", "dropped" + ended},
		"404-azure":                 {both(literal, azure), e.URL + "/404", waits},
		"404-safe":                  {safe, e.URL + "/404", waits},
		"404-safe-ends":             {both(safe, action(&ends)), e.URL + "/404", "dead_lettered" + ended},
		"404-documented-holds":      {both(literal, action(&holds)), e.URL + "/404", waits},
		"410":                       {literal, e.URL + "/410", "pending 1"},
		"410-safe":                  {safe, e.URL + "/410", "pending 1"},
		"400":                       {literal, e.URL + "/400", "dropped UndeliverableDueToHttpBadRequest 1"},
		"500":                       {literal, e.URL + "/500", "pending 1"},
		"503":                       {literal, e.URL + "/503", waits},
		"closed-port":               {literal, closedPort, waits},
		"closed-port-safe":          {safe, closedPort, waits},
		"401-azure":                 {both(literal, azure), e.URL + "/401", waits},
		"401-current":               {current, e.URL + "/401", "dropped" + ended},
		"401-current-safe":          {under("ga-2026"), e.URL + "/401", waits},
		"404-current":               {current, e.URL + "/404", waits},
		"500-current":               {current, e.URL + "/500", "pending 1"},
		"no-token-is-not-401-azure": {both(literal, azure, withoutToken), e.URL + "/200", "dropped" + ended},
	}
	for name, row := range rows {
		subscribe(t, tn, name, row.url, row.change)
	}
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, len(rows))
	publishOne(t, tn, "second")
	for name, row := range rows {
		tn.BecomeRows(t, 1, "deliveries", "event_id = 'second' AND subscription = $1 "+
			"AND concat_ws(' ', state, coalesce(hold, reason), attempts) = $2", name, row.want)
	}
}

// However many events a request has, its failure counts once, also for the second event subscription with the same
// events.
func TestFailedBatchCountsAsOneFailure(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 3}}`)
	rows := map[string]struct {
		status int
		change func(*catalog.SubscriptionSpec)
		want   int // failures after the first batch
	}{
		"503":            {http.StatusServiceUnavailable, under("touchy"), 1},
		"400":            {http.StatusBadRequest, under("touchy"), 0},
		"400-documented": {http.StatusBadRequest, documented("touchy"), 1},
	}
	bad := map[string]*endpoint{}
	for name, row := range rows {
		bad[name] = newEndpoint(t, respondWith(row.status))
		for _, to := range []string{"-billing", "-shipping"} {
			subscribe(t, tn, name+to, bad[name].URL, both(batching(20, 64), row.change))
		}
	}
	publishAtOnce(t, tn, "first", 20)
	tn.Start(t)
	tn.AttemptsMade(t, 6)
	for name, row := range rows {
		require.Len(t, bad[name].requests()[0].ids(t), 20)
		require.Equal(t, row.want, tn.Count(t, `SELECT coalesce(sum(failures_in_a_row), 0)
			FROM postrider_internal.probations WHERE endpoint_base_url = $1`, bad[name].URL), name)
	}
	publishAtOnce(t, tn, "second", 1)
	tn.AttemptsMade(t, 6)
	publishAtOnce(t, tn, "third", 1)
	tn.AttemptsMade(t, 1+2+1) // a failure that counts may hold the other attempt
	for name, row := range rows {
		tn.Become(t, row.want, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL "+
			"AND endpoint_base_url = $1", bad[name].URL)
	}
}

// A limit below the number of attempts ends a delivery or a batch at its due check: no request is sent.
func TestLoweredLimitEndsDeliveriesAtTheirDueCheck(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusInternalServerError)
	specs := map[string]func(*catalog.SubscriptionSpec){
		"single": nil, "batched": batching(10, 64),
		"dropped": dropping,
		"equal":   nil,
	}
	for name, change := range specs {
		subscribe(t, tn, name, e.URL, change)
	}
	publishAtOnce(t, tn, "e", 2)
	tn.Start(t)
	const each = 2 + 1 + 2 + 2 // requests, the two events in one batch
	for n := range 3 {
		if n > 0 {
			require.Equal(t, each, makeDue(t, tn))
		}
		tn.AttemptsMade(t, each)
	}
	for name, change := range specs {
		limit := 2
		if name == "equal" {
			limit = 3
		}
		lowered := func(s *catalog.SubscriptionSpec) { s.RetryPolicy.MaxDeliveryAttempts = &limit }
		if change != nil {
			lowered = both(change, lowered)
		}
		subscribe(t, tn, name, e.URL, lowered)
	}
	require.Equal(t, each, makeDue(t, tn))
	tn.BecomeRows(t, 8, "deliveries", "reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 3 "+
		"AND state = CASE subscription WHEN 'dropped' THEN 'dropped' ELSE 'dead_lettered' END")
	require.Equal(t, 6, tn.Rows(t, "dead_letters", "attempts = 3 AND last_status = 500"))
	require.Len(t, e.requests(), 3*each)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
	for name, change := range specs { // the test's end compares attempts with the limit in force
		subscribe(t, tn, name, e.URL, change)
	}
}
