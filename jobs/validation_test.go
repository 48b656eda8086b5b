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
	"postrider/policy"
)

const notValidatedQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'not_validated'"

// Nothing is delivered before the endpoint is validated; afterwards everything published before is.
func TestLateValidationReleasesDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, hang := newHanging(t, sendsBack)
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	id := b.begin(t, "billing", spec)
	<-hang.begun
	sub := b.put(t, "billing", spec, id)
	require.Equal(t, catalog.ProvisioningCreating, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	for n := range 3 {
		b.publishOne(t, fmt.Sprint(n))
	}
	require.Equal(t, 3, b.count(t, notValidatedQuery))
	require.Len(t, e.requests(), 1)
	_, err := b.store.Holds.Release(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	_, err = b.store.Holds.Probe(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)

	hang.letGo()
	b.attemptsMade(t, 3)
	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
	sub, err = b.store.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Empty(t, sub.Hold.Reason)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.event_subscription_states WHERE hold IS NOT NULL"))
}

// A handshake that fails after the event subscription was stored leaves it held until an operator skips the validation.
func TestFailedHandshakeKeepsTheHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, hang := newHanging(t, func(w http.ResponseWriter, r request) {
		if r.header.Get("Aeg-Event-Type") != "Notification" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	id := b.begin(t, "billing", spec)
	b.put(t, "billing", spec, id)
	b.publishOne(t, "a")
	hang.letGo()
	b.become(t, 1, "SELECT count(*) FROM postrider.event_subscriptions WHERE provisioning_state = 'Failed' "+
		"AND hold = 'not_validated' AND held_deliveries = 1")
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.handshakes WHERE state = 'failed' AND tries = 3 AND current"))

	spec.EndpointValidation = catalog.ValidationSkip
	sub := b.put(t, "billing", spec, 0)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
}

// A working endpoint is replaced only by a validated one. A first endpoint is stored without validation.
func TestWorkingEndpointIsKeptUntilAnotherIsValidated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := newEndpoint(t, respondWith(http.StatusOK))
	e, hang := newHanging(t, sendsBack)
	b.startHandshakes(t, nil)
	old := b.subscribe(t, "billing", before.URL, nil)
	spec := validated(e.URL, event.EventGrid)
	id := b.begin(t, "billing", spec)
	<-hang.begun
	_, _, err := b.store.Subscriptions.PutValidated(t.Context(), topicName, "billing", spec, id)
	require.ErrorIs(t, err, catalog.ErrValidationPending)
	b.publishOne(t, "a")
	b.attemptsMade(t, 1)
	require.Len(t, before.requests(), 1)
	hang.letGo()
	require.NoError(t, b.store.Handshakes.Wait(t.Context(), id, waitTimeout))
	kept, err := b.store.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, old.Version, kept.Version)

	silent, _ := newHanging(t, sendsBack)
	b.exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Failed'")
	spec = validated(silent.URL, event.EventGrid)
	require.Equal(t, catalog.ProvisioningUpdating,
		b.put(t, "billing", spec, b.begin(t, "billing", spec)).ProvisioningState)
}

// Pending deliveries wait when their endpoint is replaced by one that is not validated: neither gets them.
func TestNewEndpointHoldsDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := newEndpoint(t, respondWith(http.StatusOK))
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	b.subscribe(t, "billing", before.URL, nil)
	spec := validated(e.URL, event.EventGrid)
	h := b.handshakeEnded(t, "billing", spec)
	b.publishOne(t, "to the old one")
	b.attemptsMade(t, 1)
	sub := b.put(t, "billing", spec, h.ID)
	require.Equal(t, catalog.ProvisioningAwaiting, sub.ProvisioningState)
	b.publishOne(t, "to the new one")
	require.Equal(t, 1, b.count(t, notValidatedQuery))
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	b.attemptsMade(t, 1)
	require.Len(t, before.requests(), 1)
	require.Equal(t, "to the new one", e.delivered()[0].eventID())
}

// A local job with its body in memory checks again whether its endpoint was replaced.
func TestUnvalidatedEndpointGetsNoLocalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := 1
	first, hangFirst := newHanging(t, respondWith(http.StatusOK))
	second := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	b.subscribe(t, "billing", first.URL, func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = &one })
	b.publishOne(t, "a")
	<-hangFirst.begun
	b.publishOne(t, "b") // waits for the gate
	spec := validated(second.URL, event.EventGrid)
	h := b.handshakeEnded(t, "billing", spec)
	b.put(t, "billing", spec, h.ID)
	hangFirst.letGo()
	b.attemptsMade(t, 1)
	// admission, because it waited for longer than a second
	b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE hold IS NOT NULL")
	require.Empty(t, second.delivered())
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	b.attemptsMade(t, 1)
	require.Len(t, second.delivered(), 1)
}

// A user opens validationUrl: in time, too late, and before the response that leads to it was recorded.
func TestValidationURLIsOpened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	put := func(name string) (*catalog.Handshake, *catalog.Subscription) {
		h := b.handshakeEnded(t, name, spec)
		return h, b.put(t, name, spec, h.ID)
	}
	h, sub := put("billing")
	require.Equal(t, catalog.ProvisioningAwaiting, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	require.WithinDuration(t, h.ReadAt.Add(10*time.Minute), *h.CallbackExpiresAt, time.Minute)
	b.publishOne(t, "a")
	require.ErrorIs(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", "guessed"),
		postgres.ErrNotFound)
	require.ErrorIs(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "other", h.Code),
		postgres.ErrNotFound)
	require.Equal(t, 1, b.count(t, notValidatedQuery))
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	b.attemptsMade(t, 1)
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code), "opened twice")
	require.Equal(t, 1, b.count(t,
		"SELECT count(*) FROM postrider.event_subscriptions WHERE provisioning_state = 'Succeeded' AND hold IS NULL"))
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), topicName, "billing"))

	h, _ = put("late")
	b.exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE id = $1", h.ID)
	require.ErrorIs(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "late", h.Code),
		catalog.ErrValidationExpired)
	require.NoError(t, b.store.Handshakes.Expire(t.Context()))
	b.become(t, 1, "SELECT count(*) FROM postrider.event_subscriptions WHERE subscription = 'late' "+
		"AND provisioning_state = 'Failed' AND hold = 'not_validated'")
	require.Equal(t, catalog.HandshakeFailed, b.handshake(t, h.ID).State)
	require.ErrorIs(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "late", h.Code),
		catalog.ErrValidationExpired)
}

// Some endpoints open validationUrl during the request.
func TestValidationURLIsOpenedWithinTheHandshake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, hang := newHanging(t, respondWith(http.StatusInternalServerError))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	id := b.begin(t, "billing", spec)
	<-hang.begun
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", b.handshake(t, id).Code))
	require.Equal(t, catalog.ProvisioningSucceeded, b.put(t, "billing", spec, id).ProvisioningState)
	hang.letGo()
	b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	require.Equal(t, catalog.HandshakeSucceeded, b.handshake(t, id).State)
	require.Len(t, b.handshake(t, id).Steps, 2)
	require.Len(t, e.requests(), 1)
}

// A repeated handshake does not end the validation of an endpoint.
func TestValidatingOnceMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := make(chan int, 10)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if code := <-status; code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		sendsBack(w, r)
	})
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	status <- 200
	h := b.handshakeEnded(t, "billing", spec)
	b.put(t, "billing", spec, h.ID)
	b.put(t, "billing", spec, 0) // nothing has changed: no handshake is needed
	topic, err := b.store.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	again := func() (int64, *catalog.Subscription, error) {
		id, err := b.store.Handshakes.BeginValidation(t.Context(), topic, "billing", &spec, "")
		require.NoError(t, err)
		require.NoError(t, b.store.Handshakes.Wait(t.Context(), id, waitTimeout))
		sub, err := b.store.Subscriptions.ConcludeValidation(t.Context(), topicName, "billing", id)
		return id, sub, err
	}
	for range 3 {
		status <- 500
	}
	var failed *catalog.ValidationFailedError
	_, _, err = again()
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, b.count(t,
		"SELECT count(*) FROM postrider.event_subscriptions WHERE provisioning_state = 'Succeeded' AND hold IS NULL"))
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
	b := setup(t)
	e := newEndpoint(t, sendsBack)
	b.startHandshakes(t, nil)
	topic, err := b.store.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	const many = 40
	errs := make(chan error, many)
	for n := range many {
		go func() {
			spec, name := validated(fmt.Sprintf("%s/%d", e.URL, n), event.EventGrid), fmt.Sprintf("sub-%d", n)
			id, err := b.store.Handshakes.BeginValidation(t.Context(), topic, name, &spec, "")
			if err == nil && n%2 == 0 {
				err = b.store.Handshakes.Wait(t.Context(), id, time.Duration(n)*time.Millisecond)
			}
			if err == nil {
				_, _, err = b.store.Subscriptions.PutValidated(t.Context(), topicName, name, spec, id)
			}
			errs <- err
		}()
	}
	for range many {
		require.NoError(t, <-errs)
	}
	b.become(t, many,
		"SELECT count(*) FROM postrider.event_subscriptions WHERE provisioning_state = 'Succeeded' AND hold IS NULL")
	b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	b.publishOne(t, "a")
	b.attemptsMade(t, many)
}

// Deliveries grow older while their endpoint is not validated, as under other holds.
func TestTimeToLiveContinuesUntilTheValidation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	minute := 1
	spec.RetryPolicy.Policy, spec.RetryPolicy.EventTimeToLiveInMinutes = "ga-2018", &minute
	b.put(t, "billing", spec, b.handshakeEnded(t, "billing", spec).ID)
	b.publishOne(t, "old")
	b.exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 minute', "+
		"next_attempt_at "+
		"= next_attempt_at - interval '1 minute'")
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE event_id = 'old' "+
		"AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	require.Empty(t, e.delivered())
}

// Batches wait for the validation, too.
func TestBatchesWaitForTheValidation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	ten := 10
	spec.MaxEventsPerBatch = &ten
	h := b.handshakeEnded(t, "billing", spec)
	b.put(t, "billing", spec, h.ID)
	for n := range 5 {
		b.publishOne(t, fmt.Sprint(n))
	}
	require.Equal(t, 5, b.count(t, notValidatedQuery))
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	b.become(t, 5, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
}

// An attempt that read the holds before its event subscription got an endpoint without validation does not call it. The
// test removes the hold, as if it were too late.
func TestEndpointThatIsNotValidatedIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"alone": 1, "batches": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			e := newEndpoint(t, respondWith(http.StatusOK))
			b.subscribe(t, "billing", e.URL, func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = &most })
			b.exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Updating'")
			require.NoError(t, b.store.Cache.Reload(t.Context()))
			b.startHandshakes(t, nil)
			b.publishOne(t, "a")
			b.become(t, 1, "SELECT count(*) FROM postrider_internal.all_deliveries d LEFT JOIN postrider_internal.batches b "+
				"ON b.id = d.open_batch_id WHERE coalesce(d.hold, b.hold) = 'not_validated'")
			require.Empty(t, e.requests())
			b.exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Succeeded'")
			require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
			require.Len(t, e.requests(), 1)
		})
	}
}

// again begins another handshake of an event subscription, waits for it and lets the event subscription use it.
func (b *bundle) again(t *testing.T, name string) *catalog.Subscription {
	t.Helper()
	topic, err := b.store.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	sub, err := b.store.Subscriptions.Get(t.Context(), topicName, name)
	require.NoError(t, err)
	id, err := b.store.Handshakes.RepeatValidation(t.Context(), topic, sub, "")
	require.NoError(t, err)
	require.NoError(t, b.store.Handshakes.Wait(t.Context(), id, waitTimeout))
	sub, err = b.store.Subscriptions.ConcludeValidation(t.Context(), topicName, name, id)
	require.NoError(t, err)
	require.Equal(t, id, sub.HandshakeID)
	return sub
}

// An endpoint that an earlier handshake validates, by its link or by a late response, is validated. That does not hold
// for another endpoint or another event schema.
func TestEarlierHandshakeValidates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	state := func(name string) catalog.ProvisioningState {
		sub, err := b.store.Subscriptions.Get(t.Context(), topicName, name)
		require.NoError(t, err)
		return sub.ProvisioningState
	}
	first := b.handshakeEnded(t, "billing", spec)
	b.put(t, "billing", spec, first.ID)
	require.Equal(t, catalog.ProvisioningAwaiting, b.again(t, "billing").ProvisioningState)
	b.publishOne(t, "a")
	require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "billing", first.Code))
	require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
	sub, err := b.store.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Equal(t, first.ID, sub.HandshakeID)

	h := b.handshakeEnded(t, "moved", spec)
	b.put(t, "moved", spec, h.ID)
	for _, other := range []catalog.SubscriptionSpec{validated(e.URL+"/elsewhere", event.EventGrid), validated(e.URL,
		event.CloudEvents)} {
		b.put(t, "moved", other, b.handshakeEnded(t, "moved", other).ID)
		b.exec(t, "UPDATE postrider_internal.handshakes SET state = 'awaiting', concluded_at = NULL WHERE id = $1", h.ID)
		require.NoError(t, b.store.Handshakes.CompleteValidation(t.Context(), topicName, "moved", h.Code))
		require.Equal(t, catalog.ProvisioningAwaiting, state("moved"))
	}
}

func TestLateResponseToAnEarlierHandshakeValidates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if requests.Add(1) == 1 {
			close(begun)
			<-release
			sendsBack(w, r)
		}
	})
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	id := b.begin(t, "billing", spec)
	<-begun
	require.Equal(t, catalog.ProvisioningCreating, b.put(t, "billing", spec, id).ProvisioningState)
	require.Equal(t, catalog.ProvisioningAwaiting, b.again(t, "billing").ProvisioningState)
	close(release)
	b.become(t, 1,
		"SELECT count(*) FROM postrider.event_subscriptions WHERE provisioning_state = 'Succeeded' AND hold IS NULL")
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.handshakes WHERE state = 'succeeded' AND current"))
}

// Of two handshakes of one endpoint that was stored twice at once, the one that succeeds counts.
func TestSecondHandshakeThatSucceedsCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
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
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	first := b.begin(t, "billing", spec)
	<-begun
	second := b.handshakeEnded(t, "billing", spec)
	require.Equal(t, catalog.ProvisioningCreating, b.put(t, "billing", spec, first).ProvisioningState)
	sub := b.put(t, "billing", spec, second.ID)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Empty(t, sub.Hold.Reason)
	require.Equal(t, catalog.ProvisioningSucceeded, b.put(t, "billing", spec, first).ProvisioningState,
		"the validation stays")
}

// A handshake is used until it fails. A new one begins if all settings are stored again, or with another endpoint, but
// not with other changes.
func TestWhenAHandshakeBeginsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.startHandshakes(t, nil)
	spec := validated(e.URL, event.EventGrid)
	h := b.handshakeEnded(t, "billing", spec)
	b.put(t, "billing", spec, h.ID)
	spec.Labels = []string{"a"}
	kept := b.put(t, "billing", spec, 0)
	require.Equal(t, catalog.ProvisioningAwaiting, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	require.Equal(t, h.ID, kept.HandshakeID)

	b.exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE id = $1", h.ID)
	require.NoError(t, b.store.Handshakes.Expire(t.Context()))
	spec.Labels = []string{"b"}
	kept, err := b.store.Subscriptions.Patch(t.Context(), topicName, "billing", spec)
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningFailed, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	_, _, err = b.store.Subscriptions.Put(t.Context(), topicName, "billing", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	spec.EndpointURL += "/elsewhere"
	_, err = b.store.Subscriptions.Patch(t.Context(), topicName, "billing", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
}
