package jobs_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/filter"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// Every status from 100 to 599 under each of the five policies, with real requests: the record and the time of the next
// attempt are those of the policy's table. A 1xx announces a response; if none follows, the endpoint closed the
// connection. 101 is the exception: no HTTP follows it.
func TestEveryStatusUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	e := newEndpoint(t, statusOfEvent)
	var kinds []statusColumn
	for _, p := range policy.Builtins() {
		kinds = append(kinds, statusColumn{p, policy.KindWebhook})
	}
	azure, _ := policy.Builtin("namespace-2023")
	kinds = append(kinds, statusColumn{azure, policy.KindAzureResource}) // ga-2021 is in TestStatusSweep
	useWorkers(t, tn, 400)
	tn.Start(t, func(o *jobs.Options) { o.OnAttempt = nil })
	// One after the other: on a busy machine, the retries of all would come before the first attempts of the last.
	for _, k := range kinds {
		names := []string{k.name()}
		subscribe(t, tn, k.name(), e.URL, k.with("status/"))
		for i := range 10 { // broken connections reduce the gate's limit: there must be few for one event subscription
			names = append(names, fmt.Sprintf("%s-1x%d", k.name(), i))
			subscribe(t, tn, names[i+1], e.URL, k.with(fmt.Sprintf("announced/%d", i)))
		}
		publishStatuses(t, tn)
		tn.BecomeRows(t, 500, "delivery_attempts", "number = 1 AND subscription = ANY ($1)", names)
		for _, row := range statusRows(t, tn, k.name()) {
			row.require(t, k)
		}
		for _, name := range names {
			require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, name))
		}
	}
}

type statusColumn struct {
	policy policy.Policy
	kind   policy.EndpointKind
}

func (k statusColumn) name() string { return k.policy.Name + "-" + string(k.kind) }

func (k statusColumn) with(subject string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.EndpointKind, s.Filter = k.policy.Name, k.kind, filter.Filter{SubjectBeginsWith: subject}
	}
}

func publishStatuses(t *testing.T, tn *testnode.Node) {
	t.Helper()
	bodies := make([]string, 500)
	for i := range bodies {
		status, subject := 100+i, "status/"
		if announced(status) {
			subject = fmt.Sprintf("announced/%d", status%10)
		}
		bodies[i] = fmt.Sprintf(`{"id":"%d","subject":%q,"eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
			`"dataVersion":"1","data":{}}`, status, subject)
	}
	publishBody(t, tn, jsonType, "["+strings.Join(bodies, ",")+"]")
}

func announced(status int) bool { return status < 200 && status != http.StatusSwitchingProtocols }

// statusOfEvent responds to event 503 with 503. Go's server cannot send a 1xx alone.
func statusOfEvent(w http.ResponseWriter, r request) {
	status, _ := strconv.Atoi(r.eventID())
	if status >= 200 {
		w.WriteHeader(status)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d Announced\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", status)
}

// statusRow is the recorded result of one status.
type statusRow struct {
	Event, Status                   int
	Outcome, Verdict, State, Reason string
	Floor                           int // milliseconds
	Gap                             float64
}

func statusRows(t *testing.T, tn *testnode.Node, name string) []statusRow {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(), `SELECT d.event_id::int AS event, coalesce(a.status, 0) AS status, a.outcome,
		       a.verdict, d.state, coalesce(d.reason, '') AS reason,
		coalesce(a.floor_ms, 0) AS floor, coalesce(extract(epoch FROM a.next_attempt_at - a.started_at) - a.duration_us / 1e6,
		    0)::float8 AS gap
		FROM postrider_internal.delivery_attempts a JOIN postrider.deliveries d USING (delivery_id) WHERE a.number = 1
		    AND (d.subscription = $1 OR starts_with(d.subscription, $1 || '-1x'))`, name)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[statusRow])
	require.NoError(t, err)
	return list
}

func (r statusRow) require(t *testing.T, k statusColumn) {
	t.Helper()
	where := fmt.Sprintf("%s: %d", k.name(), r.Event)
	result := policy.Result{Status: r.Event}
	if announced(r.Event) {
		result = policy.Result{Err: policy.ErrorSocket}
	}
	require.Equal(t, result.Status, r.Status, where)
	require.Equal(t, string(k.policy.Classify(k.kind, result)), r.Outcome, where)
	require.EqualValues(t, k.decided(result).Action, r.Verdict, where)
	if r.Event == http.StatusSwitchingProtocols {
		result = policy.Result{Status: 599} // not in Explain's range, and "other" in every policy
	}
	explained, err := policy.Explain(&k.policy, policy.ExplainOptions{Kind: k.kind, Result: result})
	require.NoError(t, err, where)
	if len(explained.Attempts) == 1 {
		require.Equal(t, policy.ExplainedEnd{State: r.State, Reason: policy.Reason(r.Reason)}, explained.End, where)
		return
	}
	require.Equal(t, "pending", r.State, where)
	require.GreaterOrEqual(t, r.Gap, explained.Attempts[1].AtSeconds-0.001, where)
	require.Less(t, r.Gap, explained.Attempts[1].AtSeconds+30, "%s: a busy machine decides late", where)
	require.EqualValues(t, k.policy.Cell(k.kind, result).MinDelay.Milliseconds(), r.Floor, where)
}

func (k statusColumn) decided(result policy.Result) policy.Verdict {
	at := time.Unix(0, 0)
	return policy.Decide(k.policy.Resolve(policy.Overrides{}).Policy, policy.Attempt{
		Result: result, Kind: k.kind, Number: 1, TimeToLiveSince: at, FirstAttemptAt: at, ScheduledAt: at, FinishedAt: at,
		Limits: policy.Limits{MaxAttempts: k.policy.DefaultMaxAttempts, TTL: k.policy.DefaultTTL}, DeadLetter: true,
	})
}
