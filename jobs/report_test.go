package jobs_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// logged is a log that a test can read while it is written.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func TestDeliveryWithoutItsJobIsRepairedAndLogged(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sink := newEndpoint(t, respondWith(200))
	subscribe(t, tn, "all", sink.URL, nil)
	publishOne(t, tn, "lost")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, olderBy, "2 minutes")
	var log logged
	tn.Start(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })

	require.Equal(t, "lost", tn.Attempt(t).EventID)

	tn.BecomeRows(t, 1, "delivery_attempts", "reruns = 1")
	testnode.Within(t, "the repair is logged", func() bool {
		return strings.Contains(log.String(), "level=ERROR") &&
			strings.Contains(log.String(), "rows_without_job=1 jobs_without_delivery=0")
	})
	require.EqualValues(t, 1, tn.System.Maintenance.Repairs())
	tn.Become(t, 1, "SELECT consistency_repairs FROM postrider.nodes") // with the next heartbeat
}

// attempts returns the log lines of an event subscription's attempts.
func (l *logged) attempts(t *testing.T, subscription string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		if line["msg"] == "delivery attempted" && line["subscription"] == subscription {
			lines = append(lines, line)
		}
	}
	return lines
}

// A batch has one line, with its first events.
func TestAttemptsAreLogged(t *testing.T) {
	t.Parallel()
	tn, log := setup(t), &logged{}
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "billing", e.URL+"?code=planted-secret", nil)
	tn.Start(t, func(o *jobs.Options) {
		o.Logger, o.LogAttempts = slog.New(slog.NewJSONHandler(log, nil)), jobs.LogAll
	})
	id := "e\u202e1\x1b[31m" + strings.Repeat("x", 300)
	body, err := json.Marshal(map[string]any{
		"id": id, "subject": "s", "eventType": "test", "eventTime": "2026-01-01T00:00:00Z", "data": 1,
	})
	require.NoError(t, err)
	publishBody(t, tn, jsonType, "["+string(body)+"]")
	require.Equal(t, 503, tn.Attempt(t).Result.Status)
	e.status.Store(http.StatusOK)
	require.Equal(t, 1, makeDue(t, tn))
	require.Equal(t, 200, tn.Attempt(t).Result.Status)

	lines := log.attempts(t, "billing")
	require.Len(t, lines, 2)
	require.NotContains(t, log.String(), "planted-secret")
	failed := lines[0]
	require.Equal(t, "e\ufffd1\ufffd[31m"+strings.Repeat("x", 248)+"…", failed["event_id"])
	at, err := time.Parse(time.RFC3339Nano, failed["next_attempt_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	for name, value := range map[string]any{
		"level": "INFO", "topic": topicName, "event_type": "test", "number": 1.0, "reruns": 0.0, "late": false,
		"endpoint": e.URL, "outcome": "Busy", "status": 503.0, "retry_policy": "ga-2021", "verdict": "retry",
		"node": "node-1",
	} {
		require.Equal(t, value, failed[name], name)
	}
	require.Contains(t, failed["why"], "503")
	for _, name := range []string{"duration_ms", "first_byte_ms", "delivery_id"} {
		require.Positive(t, failed[name], name)
	}

	subscribe(t, tn, "batched", e.URL, batching(20, 64))
	publishAtOnce(t, tn, "e", 12)
	tn.AttemptsMade(t, 12+1)
	lines = log.attempts(t, "batched")
	require.Len(t, lines, 1)
	require.Equal(t, 12.0, lines[0]["events"])
	require.Len(t, lines[0]["event_ids"], 10)
	require.Positive(t, lines[0]["batch_id"])
	require.NotContains(t, lines[0], "delivery_id")
}

// subscribeSystem subscribes an endpoint to postrider.system.
func subscribeSystem(t *testing.T, tn *testnode.Node, name, url string, types ...string) {
	t.Helper()
	require.NoError(t, tn.System.Topics.EnsureSystem(t.Context()))
	_, _, err := tn.System.Subscriptions.Put(t.Context(), catalog.SystemTopic, name, catalog.SubscriptionSpec{
		EndpointURL: url, EndpointKind: policy.KindWebhook, EventDeliverySchema: event.CloudEvents,
		RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
		Filter:      filter.Filter{IncludedEventTypes: types},
	})
	require.NoError(t, err)
}

// notices returns the types and subjects of the CloudEvents that an endpoint got, sorted.
func (e *endpoint) notices(t *testing.T) (list []string) {
	t.Helper()
	for _, r := range e.requests() {
		var events []struct{ SpecVersion, Type, Subject string }
		body := []byte(r.body)
		if body[0] != '[' {
			body = slices.Concat([]byte("["), body, []byte("]"))
		}
		require.NoError(t, json.Unmarshal(body, &events))
		for _, n := range events {
			require.Equal(t, "1.0", n.SpecVersion)
			list = append(list, n.Type+" "+n.Subject)
		}
	}
	slices.Sort(list)
	return list
}

const ofBilling = " /topics/orders/subscriptions/billing"

// Each type of notice is delivered by an ordinary event subscription, and a filter selects types.
func TestOperatorsAreNotified(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	all, some := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t, respondWith(http.StatusOK))
	subscribeSystem(t, tn, "all", all.URL)
	subscribeSystem(t, tn, "some", some.URL, "postrider.probation.ended", "postrider.subscription.expired")
	bad := newSwitchable(t, http.StatusNotFound)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 3}}`)
	subscribe(t, tn, "billing", bad.URL, under("touchy"))
	tn.Start(t)
	publishOne(t, tn, "dead")
	tn.BecomeRows(t, 1, "dead_letters", "")

	subscribe(t, tn, "billing", bad.URL, func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy = "touchy"
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
	publishOne(t, tn, "dropped")
	tn.BecomeRows(t, 1, "deliveries", "state = 'dropped'")
	publishOne(t, tn, "third")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL AND notified")

	bad.status.Store(http.StatusOK)
	publishOne(t, tn, "probe")
	passHold(t, tn)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.probations")
	at := tn.System.Clock.Now().Add(100 * time.Millisecond)
	subscribe(t, tn, "brief", bad.URL+"/brief", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at })
	want := []string{
		"postrider.deadLetter.created" + ofBilling, "postrider.delivery.dropped" + ofBilling,
		"postrider.delivery.dropped" + ofBilling,
		"postrider.probation.ended" + ofBilling, "postrider.probation.started" + ofBilling,
		"postrider.subscription.expired /topics/orders/subscriptions/brief",
	}
	testnode.Within(t, "the notices arrive",
		func() bool { return len(all.notices(t)) >= len(want) && len(some.notices(t)) >= 2 })
	require.Equal(t, want, all.notices(t))
	require.Equal(t, []string{want[3], want[5]}, some.notices(t))
	settle(t, tn)
}

// A probation of several event subscriptions is one notice that names all of them; an operator's release ends it.
func TestProbationOfASharedEndpointIsOneNotice(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	operators, bad := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t,
		respondWith(http.StatusServiceUnavailable))
	subscribeSystem(t, tn, "operators", operators.URL, "postrider.probation.started", "postrider.probation.ended")
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 1}}`)
	subscribe(t, tn, "billing", bad.URL, under("touchy"))
	// No event matches it: a failure after the release would begin another probation.
	subscribe(t, tn, "shipping", bad.URL, both(under("touchy"), only("Shop.Shipped")))
	tn.Start(t)
	publishOne(t, tn, "a")
	testnode.Within(t, `len(operators.requests()) == 1`, func() bool { return len(operators.requests()) == 1 })
	_, err := tn.System.Holds.Release(t.Context(), topicName, "billing")
	require.NoError(t, err)
	testnode.Within(t, `len(operators.requests()) == 2`, func() bool { return len(operators.requests()) == 2 })
	require.Equal(t, []string{"postrider.probation.ended /topics/orders", "postrider.probation.started /topics/orders"},
		operators.notices(t))
	for i, r := range operators.requests() {
		var n struct {
			Data struct {
				Topic, Reason, Since, Until, EndpointBaseURL string
				Subscriptions                                []string
				SubscriptionCount                            int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &n))
		require.Equal(t, []string{"/topics/orders/subscriptions/billing", "/topics/orders/subscriptions/shipping"},
			n.Data.Subscriptions)
		require.Equal(t, 2, n.Data.SubscriptionCount)
		require.Equal(t, "orders", n.Data.Topic)
		require.Equal(t, "Busy", n.Data.Reason)
		require.Equal(t, bad.URL, n.Data.EndpointBaseURL)
		require.NotEmpty(t, n.Data.Since)
		require.Equal(t, i == 0, n.Data.Until != "")
	}
}

// The dead letters and the probation of failing notices create no notices, which would fail, too.
func TestFailedNoticesCreateNoNotices(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	failing := newEndpoint(t, respondWith(http.StatusNotFound))
	tn.Exec(t, "UPDATE postrider_internal.retry_policies "+
		"SET settings = jsonb_set(settings, '{probation,trigger}', '1') WHERE name = 'ga-2021'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	subscribeSystem(t, tn, "operators", failing.URL)
	subscribe(t, tn, "billing", failing.URL, nil) // shares its probation with "operators"
	tn.Start(t)
	publishOne(t, tn, "dead")
	const notices = "SELECT count(*) FROM postrider.events WHERE topic = 'postrider.system'"
	fail := func(n int) {
		testnode.Within(t, "the dead letters are made", func() bool {
			passHold(t, tn) // each probe is a notice, and fails
			return tn.Count(t, "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'postrider.system'") == n
		})
	}
	tn.Become(t, 2, notices) // the dead letter, and the probation that it started
	fail(2)
	tn.Exec(t, "DELETE FROM postrider_internal.probations")
	tn.Become(t, 3, notices) // the end of that probation
	fail(3)
	require.Equal(t, 1,
		tn.Probations(t, "since IS NOT NULL AND NOT notified"),
		"a notice started the next one")
	tn.Exec(t, "DELETE FROM postrider_internal.probations")
	settle(t, tn)
	require.Zero(t, tn.Notices(t, ""))
	require.Equal(t, 3, tn.Count(t, notices), "no more notices")
}
