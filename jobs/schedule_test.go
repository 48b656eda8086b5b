package jobs_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
	v1 "postrider/server/v1"
)

// timeline is one delivery from its publish to its end.
type timeline struct {
	policy     policy.Policy
	kind       policy.EndpointKind
	result     policy.Result
	deadLetter bool
}

func (c timeline) name() string {
	destination := "None"
	if c.deadLetter {
		destination = "Rows"
	}
	return fmt.Sprintf("%s.%s.%s.%s", c.policy.Name, c.kind, c.result, destination)
}

func (c timeline) url(responding, closedPort string) string {
	switch c.result.Err {
	case policy.ErrorSocket:
		return closedPort
	case policy.ErrorDNS:
		return "http://nowhere.invalid/"
	case policy.ErrorArgument:
		return "http://192.0.2.1/" // reserved for documentation
	default:
		return fmt.Sprintf("%s/%d", responding, c.result.Status)
	}
}

func timelines() []timeline {
	results := []policy.Result{{Err: policy.ErrorSocket}, {Err: policy.ErrorDNS}, {Err: policy.ErrorArgument}}
	for _, status := range []int{200, 201, 302, 400, 401, 404, 408, 413, 414, 429, 500, 503} {
		results = append(results, policy.Result{Status: status})
	}
	var all []timeline
	for _, p := range policy.Builtins() {
		for _, result := range results {
			all = append(all, timeline{p, policy.KindWebhook, result, true}, timeline{p, policy.KindWebhook, result, false})
		}
		// Statuses that Azure endpoints treat differently, and one that they do not.
		for _, status := range []int{401, 404, 503} {
			all = append(all, timeline{p, policy.KindAzureResource, policy.Result{Status: status}, true})
		}
	}
	return all
}

// closedPort is a URL whose port is closed.
const closedPort = "http://127.0.0.1:1/"

// The timeline of every built-in policy, attempt by attempt, is that of policy.Explain, with real requests and real
// rows.
func TestBuiltInPoliciesFollowExplain(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := newEndpoint(t, statusOfPath)
	all := timelines()
	for _, c := range all {
		subscribe(t, tn, c.name(), c.url(e.URL, closedPort), func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.EndpointKind = c.policy.Name, c.kind
			if !c.deadLetter {
				s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
			}
		})
	}
	publishOne(t, tn, "e")
	tn.System.Closed.IgnoreResponses()
	tn.Start(t, func(o *jobs.Options) { o.OnAttempt = nil })
	for settle(t, tn); makeDue(t, tn) > 0; settle(t, tn) {
	}
	require.Zero(t, tn.Rows(t, "delivery_attempts", "reruns > 0"))
	for _, c := range all {
		explained, err := policy.Explain(&c.policy,
			policy.ExplainOptions{Kind: c.kind, Result: c.result, DeadLetter: &c.deadLetter})
		require.NoError(t, err)
		requireTimeline(t, tn, c.name(), explained)
	}
}

// made is one recorded attempt; its times count from the creation of the delivery.
type made struct {
	Number                  int
	Began, Ended            float64
	Next                    *float64
	Verdict, Why            string
	State, Reason           string
	Attempts, TotalAttempts int
}

func madeOf(t *testing.T, tn *testnode.Node, subscription string) []made {
	t.Helper()
	const query = `
SELECT a.number, postrider_internal.seconds(a.started_at - h.time_to_live_since) AS began,
       postrider_internal.seconds(a.started_at - h.time_to_live_since) + a.duration_us / 1e6 AS ended,
       postrider_internal.seconds(a.next_attempt_at - h.time_to_live_since) AS next, a.verdict, a.rule AS why,
       h.state, coalesce(h.reason, '') AS reason, h.attempts, count(*) OVER ()::int AS total_attempts
  FROM postrider_internal.delivery_history h
  JOIN postrider_internal.event_subscriptions s ON s.id = h.subscription_id
  JOIN postrider_internal.delivery_attempts a ON a.delivery_id = h.id
 WHERE s.name = $1 ORDER BY a.number`
	rows, err := tn.Pool.Query(t.Context(), query, subscription)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[made])
	require.NoError(t, err)
	return list
}

// requireTimeline compares. Real attempts begin late and take time: the next attempt may be later than explained by
// exactly the time lost so far, and never earlier.
func requireTimeline(t *testing.T, tn *testnode.Node, name string, want policy.Explanation) {
	t.Helper()
	const (
		rounding      = 0.002
		decisionDelay = 30 // between the end of the request and the decision, on a busy machine
	)
	list := madeOf(t, tn, name)
	require.Len(t, list, len(want.Attempts), name)
	for i, a := range list {
		expected := want.Attempts[i].AtSeconds
		lost := a.Ended - expected
		require.Equal(t, i+1, a.Number, name)
		require.GreaterOrEqual(t, a.Began, expected-rounding, "%s: attempt %d", name, a.Number)
		require.Less(t, lost, 60.0, "%s: attempt %d: too much was lost to compare", name, a.Number)
		if i == len(list)-1 && want.End.Reason != policy.ReasonTimeToLiveExceeded {
			require.Nil(t, a.Next, "%s: attempt %d", name, a.Number)
			continue
		}
		next := want.End.AtSeconds // the due check that finds it expired
		if i < len(list)-1 {
			next = want.Attempts[i+1].AtSeconds
			require.Equal(t, want.Attempts[i+1].Why, a.Why, "%s: the attempt after number %d", name, a.Number)
		}
		require.Equal(t, "retry", a.Verdict, "%s: attempt %d", name, a.Number)
		require.NotNil(t, a.Next, "%s: attempt %d", name, a.Number)
		require.GreaterOrEqual(t, *a.Next, next-rounding, "%s: the attempt after number %d", name, a.Number)
		require.Less(t, *a.Next, next+lost+decisionDelay, "%s: the attempt after number %d", name, a.Number)
	}
	last := list[len(list)-1]
	require.Equal(t, want.End.State, last.State, name)
	require.Equal(t, string(want.End.Reason), last.Reason, name)
	require.Equal(t, len(want.Attempts), last.Attempts, name)
}

// requireGap requires that the next attempt was set that long after the end of the last attempt recorded for an event
// subscription: not less, and not more than until the decision, which was made before now.
func requireGap(t *testing.T, tn *testnode.Node, want time.Duration, subscription string) {
	t.Helper()
	const query = `SELECT postrider_internal.seconds(a.next_attempt_at - a.started_at) - a.duration_us / 1e6,
		    postrider_internal.seconds(a.next_attempt_at - now())
		FROM postrider_internal.delivery_attempts a JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
		WHERE s.name = $1 ORDER BY a.number DESC LIMIT 1`
	var afterEnd, fromNow *float64
	require.NoError(t, tn.Pool.QueryRow(t.Context(), query, subscription).Scan(&afterEnd, &fromNow))
	require.NotNil(t, afterEnd, "%s: no attempt follows", subscription)
	require.GreaterOrEqual(t, *afterEnd, want.Seconds()-0.001, subscription)
	require.LessOrEqual(t, *fromNow, want.Seconds()+1, subscription) // nodes estimate the time of the database
}

func TestHangingEndpointUnderEveryBuiltInPolicy(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, _ := newHanging(t, respondWith(http.StatusOK))
	for _, p := range policy.Builtins() {
		copyPolicy(t, tn, p.Name, "quick-"+p.Name, `{"ackTimeoutInSeconds": 1}`)
		subscribe(t, tn, p.Name, e.URL,
			both(documented("quick-"+p.Name), func(s *catalog.SubscriptionSpec) {
				s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
			}))
		subscribe(t, tn, "safe-"+p.Name, e.URL, under("quick-"+p.Name))
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 2*len(policy.Builtins()))
	for _, p := range policy.Builtins() {
		require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "subscription = $1 AND outcome = 'TimedOut' AND status IS NULL "+
			"AND duration_ms BETWEEN 1000 AND 4000", p.Name), p.Name)
		requireGap(t, tn, 10*time.Second, "safe-"+p.Name)
		if p.RetryTransportErrors {
			requireGap(t, tn, 10*time.Second, p.Name)
			continue
		}
		require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = $1 AND reason = 'UndeliverableDueToClientError' "+
			"AND last_outcome = 'TimedOut' AND last_status IS NULL AND attempts = 1", p.Name), p.Name)
	}
}

// busyMachine is how late, in seconds, attempts may begin on one. It is less than the shortest step.
const busyMachine = 10

// The examples of Microsoft's pages.
func TestWorkedExamplesOfThePages(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, statusOfPath)
	rows := []struct {
		name, policy string
		status       int
		ttl, limit   *int
		began        []float64 // seconds after publishing
		reason       policy.Reason
		outcome      policy.Outcome
	}{
		// Event Grid namespace push delivery and retry, 2023-11: eight offsets, and minute 20 finds the event expired.
		{
			"twenty-minutes-ten-attempts", "namespace-2023", 500, new(20), new(10),
			[]float64{0, 10, 30, 60, 300, 600, 900},
			policy.ReasonTimeToLiveExceeded, policy.OutcomeGenericError,
		},
		// Event Grid delivery and retry, 2023-03-01: "a maximum of 6 attempts".
		{
			"thirty-minutes-ten-attempts", "ga-2021", 500, new(30), new(10),
			[]float64{0, 10, 40, 100, 400, 1000},
			policy.ReasonTimeToLiveExceeded, policy.OutcomeGenericError,
		},
		// Event Grid delivery and retry, 2020-10-29, sample of a dead letter: the limit wins over the status.
		{
			"one-attempt-not-found", "ga-2021", 404, nil, new(1),
			[]float64{0},
			policy.ReasonMaxDeliveryAttemptsExceeded, policy.OutcomeNotFound,
		},
	}
	for _, row := range rows {
		subscribe(t, tn, row.name, fmt.Sprintf("%s/%d", e.URL, row.status), func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes, s.RetryPolicy.MaxDeliveryAttempts = row.policy,
				row.ttl, row.limit
		})
	}
	publishOne(t, tn, "e")
	tn.Start(t, func(o *jobs.Options) { o.OnAttempt = nil })
	for settle(t, tn); makeDue(t, tn) > 0; settle(t, tn) {
	}
	for _, row := range rows {
		list := madeOf(t, tn, row.name)
		require.Len(t, list, len(row.began), row.name)
		for i, began := range row.began {
			require.GreaterOrEqual(t, list[i].Began, began, "%s: attempt %d", row.name, i+1)
			require.Less(t, list[i].Began, began+busyMachine, "%s: attempt %d", row.name, i+1)
		}
		require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = $1 AND reason = $2 AND attempts = $3 "+
			"AND last_outcome = $4 "+
			"AND last_status = $5", row.name, row.reason, len(row.began), row.outcome, row.status), row.name)
	}
}

// Offsets that passed while no node delivered are skipped, not made up for in a burst.
func TestPassedOffsetsAreSkipped(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	subscribe(t, tn, "offsets", e.URL, under("namespace-2023"))
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.Attempt(t)
	settle(t, tn)
	late := strings.Replace(travelStatement, "o.next_attempt_at - now()",
		"o.next_attempt_at - now() + interval '90 seconds'", 1)
	require.Equal(t, 1, tn.Count(t, late)) // the offset of 10 s is reached at 100 s: those of 30 s and 1 min have passed
	tn.Attempt(t)
	next := func() int {
		return tn.Count(t, "SELECT extract(epoch FROM next_attempt_at - first_attempt_at)::int "+
			"FROM postrider_internal.deliveries WHERE skipped_offsets = 2")
	}
	require.Equal(t, 300, next())
	makeDue(t, tn)
	tn.Attempt(t)
	require.Equal(t, 600, next())
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "number = 2 "+
		"AND why LIKE '%offsets skipped: 2; offset 4 is 5 min after the first attempt'"))
}

// A delivery whose time to live ends while no node delivers ends without a request.
func TestExpiredWithoutAnEngine(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "rows", e.URL, nil)
	subscribe(t, tn, "none", e.URL, dropping)
	publishOne(t, tn, "e")
	tn.Exec(t,
		"UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '24 hours', next_attempt_at = "+
			"now() - interval '24 hours'")
	tn.Start(t)
	tn.BecomeRows(t, 2, "deliveries", "reason = 'TimeToLiveExceeded' AND attempts = 0 AND last_outcome IS NULL")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'rows' AND state = 'dead_lettered'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'none' AND state = 'dropped'"))
	require.Empty(t, e.requests())
}

// patientTimes are the seconds of the attempts of policy "patient": densely in the first hour, then hourly for four
// days.
func patientTimes() []float64 {
	at := []float64{0, 10, 30, 60, 120, 300, 600, 900, 1200, 1500, 1800, 2100, 2400, 3000, 3600}
	for hour := 2; hour < 96; hour++ {
		at = append(at, float64(hour*3600))
	}
	return at
}

// The example policy "patient" retries for a weekend.
func TestPatientPolicyRetriesForAWeekend(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../deploy/examples/policies/patient.json")
	require.NoError(t, err)
	p, err := v1.ReadPolicy("patient", body)
	require.NoError(t, err)
	explained, err := policy.Explain(p, policy.ExplainOptions{Result: policy.Result{Status: http.StatusNotFound}})
	require.NoError(t, err)
	var at []float64
	for _, a := range explained.Attempts {
		at = append(at, a.AtSeconds)
	}
	require.Equal(t, patientTimes(), at)
	require.Equal(t,
		policy.ExplainedEnd{AtSeconds: 96 * 3600, State: "dead_lettered", Reason: policy.ReasonTimeToLiveExceeded},
		explained.End)
	once, err := policy.Explain(p, policy.ExplainOptions{Result: policy.Result{Status: http.StatusRequestEntityTooLarge}})
	require.NoError(t, err)
	require.Len(t, once.Attempts, 1)
}

// A replaced policy applies to pending deliveries from the next decision on, on a running node; limits are moved into
// its ranges.
func TestReplacedPolicyAppliesToPendingDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	copyPolicy(t, tn, policy.DefaultName, "mine", "{}")
	subscribe(t, tn, "billing", e.URL,
		func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.RetryPolicy.MaxDeliveryAttempts = "mine", new(20)
		})
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.Attempt(t)
	requireGap(t, tn, 10*time.Second, "billing")

	elsewhere := tn.Beside(t, node.Options{Node: "node-2"}).System
	p, _ := elsewhere.Cache.Snapshot().Policy("mine")
	changed := p.Clone()
	changed.MaxAttempts.Most, changed.MaxAttempts.Default = 3, 3
	changed.Steps = []policy.Seconds{policy.Seconds(time.Second), policy.Seconds(7 * time.Minute)}
	_, _, err := elsewhere.Policies.Put(t.Context(), &changed)
	require.NoError(t, err)
	testnode.Within(t, "the policy is read again", func() bool { // the running node's own reload, once per second
		seen, _ := tn.System.Cache.Snapshot().Policy("mine")
		return seen.MaxAttempts.Most == 3
	})
	makeDue(t, tn)
	tn.Attempt(t)
	requireGap(t, tn, 7*time.Minute, "billing")
	makeDue(t, tn)
	require.Equal(t, policy.ReasonMaxDeliveryAttemptsExceeded, tn.Attempt(t).Verdict.Reason)
	require.Len(t, e.requests(), 3)
}

// A policy without probation ends the current one: no rule would end its holds.
func TestReplacedPolicyEndsItsProbations(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusInternalServerError)
	scopes := []policy.ProbationScope{policy.ProbationEndpoint, policy.ProbationEventSubscription}
	policies := map[policy.ProbationScope]*policy.Policy{}
	for _, scope := range scopes {
		p := testnode.CopyNamed(t, policy.DefaultName, "mine-"+string(scope))
		p.Probation.Scope, p.Probation.Trigger, p.Steps = scope, 1, []policy.Seconds{policy.Seconds(time.Hour)}
		policies[scope] = p
		tn.PutPolicy(t, p)
		subscribe(t, tn, string(scope), e.URL, under(p.Name))
	}
	tn.Start(t)
	publishOne(t, tn, "failing")
	tn.AttemptsMade(t, 2)
	publishOne(t, tn, "held")
	require.Equal(t, 2, tn.Count(t, inProbation))

	e.status.Store(http.StatusOK)
	for _, scope := range scopes {
		policies[scope].Probation = policy.Probation{Scope: policy.ProbationNone, Action: policy.ProbationHold}
		tn.PutPolicy(t, policies[scope])
		require.Equal(t, "held", tn.Attempt(t).EventID)
	}
	require.Zero(t, tn.Count(t, waiting))
	require.Zero(t, tn.Rows(t, "event_subscriptions", "hold IS NOT NULL"))
}
