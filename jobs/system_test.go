package jobs_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/jobs"
	"postrider/policy"
)

// subscribeSystem subscribes an endpoint to postrider.system.
func (b *bundle) subscribeSystem(t *testing.T, name, url string, types ...string) {
	t.Helper()
	require.NoError(t, b.store.Topics.EnsureSystem(t.Context()))
	_, _, err := b.store.Subscriptions.Put(t.Context(), catalog.SystemTopic, name, catalog.SubscriptionSpec{
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
	b := setup(t)
	all, some := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeSystem(t, "all", all.URL)
	b.subscribeSystem(t, "some", some.URL, "postrider.probation.ended", "postrider.subscription.expired")
	bad := newSwitchable(t, http.StatusNotFound)
	b.copyPolicy(t, "ga-2021", "touchy", `{"probation_trigger":3}`)
	b.subscribe(t, "billing", bad.URL, under("touchy"))
	b.start(t, nil)
	b.publishOne(t, "dead")
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters")

	b.subscribe(t, "billing", bad.URL, func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy = "touchy"
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
	b.publishOne(t, "dropped")
	b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'dropped'")
	b.publishOne(t, "third")
	b.become(t, 1, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL AND notified")

	bad.status.Store(http.StatusOK)
	b.publishOne(t, "probe")
	b.passHold(t)
	b.become(t, 0, "SELECT count(*) FROM postrider_internal.probations")
	at := b.store.Clock.Now().Add(100 * time.Millisecond)
	b.subscribe(t, "brief", bad.URL+"/brief", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at })
	want := []string{
		"postrider.deadLetter.created" + ofBilling, "postrider.delivery.dropped" + ofBilling,
		"postrider.delivery.dropped" + ofBilling,
		"postrider.probation.ended" + ofBilling, "postrider.probation.started" + ofBilling,
		"postrider.subscription.expired /topics/orders/subscriptions/brief",
	}
	require.Eventually(t, func() bool { return len(all.notices(t)) >= len(want) && len(some.notices(t)) >= 2 },
		waitTimeout, tick)
	require.Equal(t, want, all.notices(t))
	require.Equal(t, []string{want[3], want[5]}, some.notices(t))
	b.settle(t)
}

// If an endpoint rejects notices, that creates no further notices, and ends.
func TestFailedNoticesCreateNoNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failing := newEndpoint(t, respondWith(http.StatusNotFound))
	b.exec(t, "UPDATE postrider_internal.retry_policies SET probation_trigger = 1 WHERE name = 'ga-2021'")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	b.subscribeSystem(t, "operators", failing.URL)
	b.subscribe(t, "billing", failing.URL, nil) // shares its probation with "operators"
	b.start(t, nil)
	b.publishOne(t, "dead")
	const notices = "SELECT count(*) FROM postrider.events WHERE topic = 'postrider.system'"
	fail := func(n int) {
		require.Eventually(t, func() bool {
			b.passHold(t) // each probe is a notice, and fails
			return b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'postrider.system'") == n
		}, waitTimeout, tick)
	}
	b.become(t, 2, notices) // the dead letter, and the probation that it started
	fail(2)
	b.exec(t, "DELETE FROM postrider_internal.probations")
	b.become(t, 3, notices) // the end of that probation
	fail(3)
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider_internal.probations WHERE since IS NOT NULL AND NOT notified"),
		"a notice started the next one")
	b.exec(t, "DELETE FROM postrider_internal.probations")
	b.settle(t)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.notices"))
	require.Equal(t, 3, b.count(t, notices), "no more notices")
}

// If a node dies after the dead letter's transaction and before it published the notice, another node publishes it.
func TestNoticesSurviveTheirNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	operators := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeSystem(t, "operators", operators.URL)
	bad := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "billing", bad.URL, nil)
	b.exec(t, "UPDATE postrider_internal.notice_pass SET noticed_at = 'infinity'") // no node publishes it
	b.publishOne(t, "dead")
	first := b.newEngine(t, b.store, nil)
	require.NoError(t, first.Start(t.Context()))
	b.attempt(t)
	requireStops(t, first)
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider_internal.notices"))
	require.Empty(t, operators.requests())

	b.exec(t, "UPDATE postrider_internal.notice_pass SET noticed_at = '-infinity'")
	other, _ := newStore(t, b.url, "node-2")
	second := b.newEngine(t, other, func(o *jobs.Options) { o.OnAttempt = nil })
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, second) })
	require.Eventually(t, func() bool { return len(operators.requests()) > 0 }, waitTimeout, tick)
	b.settle(t)
	require.Equal(t, []string{"postrider.deadLetter.created" + ofBilling}, operators.notices(t))
}

// A probation of several event subscriptions is one notice that names all of them; an operator's release ends it.
func TestProbationOfASharedEndpointIsOneNotice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	operators, bad := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t,
		respondWith(http.StatusServiceUnavailable))
	b.subscribeSystem(t, "operators", operators.URL, "postrider.probation.started", "postrider.probation.ended")
	b.copyPolicy(t, "ga-2021", "touchy", `{"probation_trigger":1}`)
	b.subscribe(t, "billing", bad.URL, under("touchy"))
	b.subscribe(t, "shipping", bad.URL, under("touchy"))
	b.start(t, nil)
	b.publishOne(t, "a")
	require.Eventually(t, func() bool { return len(operators.requests()) == 1 }, waitTimeout, tick)
	_, err := b.store.Holds.Release(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(operators.requests()) == 2 }, waitTimeout, tick)
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
