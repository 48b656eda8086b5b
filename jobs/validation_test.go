package jobs_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

const notValidatedQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'not_validated'"

// Nothing is delivered before the endpoint is validated; afterwards everything published before is.
func TestLateValidationReleasesDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, hang := newHanging(t, sendsBack)
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, hang.begun)
	sub := put(t, tn, "billing", spec, id)
	require.Equal(t, catalog.ProvisioningCreating, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	for n := range 3 {
		publishOne(t, tn, fmt.Sprint(n))
	}
	require.Equal(t, 3, tn.Count(t, notValidatedQuery))
	require.Len(t, e.requests(), 1)
	_, err := tn.System.Holds.Release(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	_, err = tn.System.Holds.Probe(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)

	hang.letGo()
	tn.AttemptsMade(t, 3)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	sub, err = tn.System.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Empty(t, sub.Hold.Reason)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.event_subscription_states WHERE hold IS "+
		"NOT NULL"))
}

// A handshake that fails after the event subscription was stored leaves it held until an operator skips the validation.
func TestFailedHandshakeKeepsTheHold(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, hang := newHanging(t, func(w http.ResponseWriter, r request) {
		if r.header.Get("Aeg-Event-Type") != "Notification" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	put(t, tn, "billing", spec, id)
	publishOne(t, tn, "a")
	hang.letGo()
	tn.BecomeRows(t, 1, "event_subscriptions", "provisioning_state = 'Failed' AND hold = 'not_validated' "+
		"AND held_deliveries = 1")
	require.Equal(t, 1, tn.Rows(t, "handshakes", "state = 'failed' AND tries = 3 AND current"))

	spec.EndpointValidation = catalog.ValidationSkip
	sub := put(t, tn, "billing", spec, 0)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
}

// A working endpoint is replaced only by a validated one. A first endpoint is stored without validation.
func TestWorkingEndpointIsKeptUntilAnotherIsValidated(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	before := newEndpoint(t, respondWith(http.StatusOK))
	e, hang := newHanging(t, sendsBack)
	startHandshakes(t, tn, nil)
	old := subscribe(t, tn, "billing", before.URL, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, hang.begun)
	_, _, err := tn.System.Subscriptions.PutValidated(t.Context(), topicName, "billing", spec, id)
	require.ErrorIs(t, err, catalog.ErrValidationPending)
	publishOne(t, tn, "a")
	tn.AttemptsMade(t, 1)
	require.Len(t, before.requests(), 1)
	hang.letGo()
	require.NoError(t, tn.System.Handshakes.Wait(t.Context(), id, testnode.Timeout))
	kept, err := tn.System.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, old.Version, kept.Version)

	silent, _ := newHanging(t, sendsBack)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Failed'")
	spec = validated(silent.URL, event.EventGrid)
	require.Equal(t, catalog.ProvisioningUpdating,
		put(t, tn, "billing", spec, begin(t, tn, "billing", spec)).ProvisioningState)
}

// A local job with its body in memory checks again whether its endpoint was replaced.
func TestUnvalidatedEndpointGetsNoLocalJobs(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	one := 1
	first, hangFirst := newHanging(t, respondWith(http.StatusOK))
	second := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, nil)
	subscribe(t, tn, "billing", first.URL, func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = &one })
	publishOne(t, tn, "a")
	await(t, hangFirst.begun)
	publishOne(t, tn, "b") // waits for the gate
	spec := validated(second.URL, event.EventGrid)
	h := handshakeEnded(t, tn, "billing", spec)
	put(t, tn, "billing", spec, h.ID)
	hangFirst.letGo()
	tn.AttemptsMade(t, 1)
	// admission, because it waited for longer than a second
	tn.BecomeRows(t, 1, "deliveries", "hold IS NOT NULL")
	require.Empty(t, second.delivered())
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	tn.AttemptsMade(t, 1)
	require.Len(t, second.delivered(), 1)
}

// A user opens validationUrl: in time, too late, and before the response that leads to it was recorded.
func TestValidationURLIsOpened(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	put := func(name string) (*catalog.Handshake, *catalog.Subscription) {
		h := handshakeEnded(t, tn, name, spec)
		return h, put(t, tn, name, spec, h.ID)
	}
	h, sub := put("billing")
	require.Equal(t, catalog.ProvisioningAwaiting, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	require.WithinDuration(t, h.ReadAt.Add(10*time.Minute), *h.CallbackExpiresAt, time.Minute)
	publishOne(t, tn, "a")
	require.ErrorIs(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", "guessed"),
		postgres.ErrNotFound)
	require.ErrorIs(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "other", h.Code),
		postgres.ErrNotFound)
	require.Equal(t, 1, tn.Count(t, notValidatedQuery))
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	tn.AttemptsMade(t, 1)
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code), "opened twice")
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "provisioning_state = 'Succeeded' AND hold IS NULL"))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "billing"))

	h, _ = put("late")
	tn.Exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE id = $1", h.ID)
	require.ErrorIs(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "late", h.Code),
		catalog.ErrValidationExpired)
	require.NoError(t, tn.System.Handshakes.Expire(t.Context()))
	tn.BecomeRows(t, 1, "event_subscriptions", "subscription = 'late' AND provisioning_state = 'Failed' "+
		"AND hold = 'not_validated'")
	require.Equal(t, catalog.HandshakeFailed, handshakeOf(t, tn, h.ID).State)
	require.ErrorIs(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "late", h.Code),
		catalog.ErrValidationExpired)
}

// Some endpoints open validationUrl during the request.
func TestValidationURLIsOpenedWithinTheHandshake(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, hang := newHanging(t, respondWith(http.StatusInternalServerError))
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, hang.begun)
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", handshakeOf(t, tn,
		id).Code))
	require.Equal(t, catalog.ProvisioningSucceeded, put(t, tn, "billing", spec, id).ProvisioningState)
	hang.letGo()
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	require.Equal(t, catalog.HandshakeSucceeded, handshakeOf(t, tn, id).State)
	require.Len(t, handshakeOf(t, tn, id).Steps, 2)
	require.Len(t, e.requests(), 1)
}

// A repeated handshake does not end the validation of an endpoint.
func TestValidatingOnceMore(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	status := make(chan int, 10)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if code := <-status; code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		sendsBack(w, r)
	})
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	status <- 200
	h := handshakeEnded(t, tn, "billing", spec)
	put(t, tn, "billing", spec, h.ID)
	put(t, tn, "billing", spec, 0) // nothing has changed: no handshake is needed
	topic, err := tn.System.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	again := func() (int64, *catalog.Subscription, error) {
		id, err := tn.System.Handshakes.BeginValidation(t.Context(), topic, "billing", &spec, "")
		require.NoError(t, err)
		require.NoError(t, tn.System.Handshakes.Wait(t.Context(), id, testnode.Timeout))
		sub, err := tn.System.Subscriptions.ConcludeValidation(t.Context(), topicName, "billing", id)
		return id, sub, err
	}
	for range 3 {
		status <- 500
	}
	var failed *catalog.ValidationFailedError
	_, _, err = again()
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "provisioning_state = 'Succeeded' AND hold IS NULL"))
	status <- 200
	id, sub, err := again()
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Equal(t, id, sub.HandshakeID)
	spec.EndpointURL += "/elsewhere"
	status <- 200
	_, _, err = again()
	require.ErrorIs(t, err, postgres.ErrConflict)
}

// The event subscription is stored and its handshake ends in any order: in the end it has no hold.
func TestStoreAndHandshakeInAnyOrder(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, sendsBack)
	startHandshakes(t, tn, nil)
	topic, err := tn.System.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	const many = 16
	errs := make(chan error, many)
	for n := range many {
		go func() {
			spec, name := validated(fmt.Sprintf("%s/%d", e.URL, n), event.EventGrid), fmt.Sprintf("sub-%d", n)
			id, err := tn.System.Handshakes.BeginValidation(t.Context(), topic, name, &spec, "")
			if err == nil && n%2 == 0 {
				err = tn.System.Handshakes.Wait(t.Context(), id, time.Duration(n)*time.Millisecond)
			}
			if err == nil {
				_, _, err = tn.System.Subscriptions.PutValidated(t.Context(), topicName, name, spec, id)
			}
			errs <- err
		}()
	}
	for range many {
		require.NoError(t, <-errs)
	}
	tn.BecomeRows(t, many, "event_subscriptions", "provisioning_state = 'Succeeded' AND hold IS NULL")
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	publishOne(t, tn, "a")
	tn.AttemptsMade(t, many)
}

// An attempt that read the holds before its event subscription got an endpoint without validation does not call it. The
// test removes the hold, as if it were too late.
func TestEndpointThatIsNotValidatedIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"alone": 1, "batches": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			e := newEndpoint(t, respondWith(http.StatusOK))
			subscribe(t, tn, "billing", e.URL, func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = &most })
			tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Updating'")
			require.NoError(t, tn.System.Cache.Reload(t.Context()))
			startHandshakes(t, tn, nil)
			publishOne(t, tn, "a")
			tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.all_deliveries d LEFT JOIN postrider_internal.batches b "+
				"ON b.id = d.open_batch_id WHERE coalesce(d.hold, b.hold) = 'not_validated'")
			require.Empty(t, e.requests())
			tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Succeeded'")
			require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
			require.Len(t, e.requests(), 1)
		})
	}
}

// again begins another handshake of an event subscription, waits for it and lets the event subscription use it.
func again(t *testing.T, tn *testnode.Node, name string) *catalog.Subscription {
	t.Helper()
	topic, err := tn.System.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	sub, err := tn.System.Subscriptions.Get(t.Context(), topicName, name)
	require.NoError(t, err)
	id, err := tn.System.Handshakes.RepeatValidation(t.Context(), topic, sub, "")
	require.NoError(t, err)
	require.NoError(t, tn.System.Handshakes.Wait(t.Context(), id, testnode.Timeout))
	sub, err = tn.System.Subscriptions.ConcludeValidation(t.Context(), topicName, name, id)
	require.NoError(t, err)
	require.Equal(t, id, sub.HandshakeID)
	return sub
}

// An endpoint that an earlier handshake validates, by its link or by a late response, is validated. That does not hold
// for another endpoint or another event schema.
func TestEarlierHandshakeValidates(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	state := func(name string) catalog.ProvisioningState {
		sub, err := tn.System.Subscriptions.Get(t.Context(), topicName, name)
		require.NoError(t, err)
		return sub.ProvisioningState
	}
	first := handshakeEnded(t, tn, "billing", spec)
	put(t, tn, "billing", spec, first.ID)
	require.Equal(t, catalog.ProvisioningAwaiting, again(t, tn, "billing").ProvisioningState)
	publishOne(t, tn, "a")
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", first.Code))
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	sub, err := tn.System.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Equal(t, first.ID, sub.HandshakeID)

	h := handshakeEnded(t, tn, "moved", spec)
	put(t, tn, "moved", spec, h.ID)
	for _, other := range []catalog.SubscriptionSpec{validated(e.URL+"/elsewhere", event.EventGrid), validated(e.URL,
		event.CloudEvents)} {
		put(t, tn, "moved", other, handshakeEnded(t, tn, "moved", other).ID)
		tn.Exec(t, "UPDATE postrider_internal.handshakes SET state = 'awaiting', concluded_at = NULL WHERE id = $1", h.ID)
		require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "moved", h.Code))
		require.Equal(t, catalog.ProvisioningAwaiting, state("moved"))
	}
}

func TestLateResponseToAnEarlierHandshakeValidates(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if requests.Add(1) == 1 {
			close(begun)
			<-release
			sendsBack(w, r)
		}
	})
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, begun)
	require.Equal(t, catalog.ProvisioningCreating, put(t, tn, "billing", spec, id).ProvisioningState)
	require.Equal(t, catalog.ProvisioningAwaiting, again(t, tn, "billing").ProvisioningState)
	close(release)
	tn.BecomeRows(t, 1, "event_subscriptions", "provisioning_state = 'Succeeded' AND hold IS NULL")
	require.Equal(t, 1, tn.Rows(t, "handshakes", "state = 'succeeded' AND current"))
}

// Of two handshakes of one endpoint that was stored twice at once, the one that succeeds counts.
func TestSecondHandshakeThatSucceedsCounts(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if requests.Add(1) == 1 {
			close(begun)
			<-release
			return
		}
		sendsBack(w, r)
	})
	defer close(release)
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	first := begin(t, tn, "billing", spec)
	await(t, begun)
	second := handshakeEnded(t, tn, "billing", spec)
	require.Equal(t, catalog.ProvisioningCreating, put(t, tn, "billing", spec, first).ProvisioningState)
	sub := put(t, tn, "billing", spec, second.ID)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Empty(t, sub.Hold.Reason)
	require.Equal(t, catalog.ProvisioningSucceeded, put(t, tn, "billing", spec, first).ProvisioningState,
		"the validation stays")
}

// A handshake is used until it fails. A new one begins if all settings are stored again, or with another endpoint, but
// not with other changes.
func TestWhenAHandshakeBeginsAgain(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	h := handshakeEnded(t, tn, "billing", spec)
	put(t, tn, "billing", spec, h.ID)
	spec.Labels = []string{"a"}
	kept := put(t, tn, "billing", spec, 0)
	require.Equal(t, catalog.ProvisioningAwaiting, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	require.Equal(t, h.ID, kept.HandshakeID)

	tn.Exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE id = $1", h.ID)
	require.NoError(t, tn.System.Handshakes.Expire(t.Context()))
	spec.Labels = []string{"b"}
	kept, err := tn.System.Subscriptions.Patch(t.Context(), topicName, "billing", spec)
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningFailed, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	_, _, err = tn.System.Subscriptions.Put(t.Context(), topicName, "billing", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	spec.EndpointURL += "/elsewhere"
	_, err = tn.System.Subscriptions.Patch(t.Context(), topicName, "billing", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
}
