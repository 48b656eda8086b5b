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

const validatedSubscription = "provisioning_state = 'Succeeded' AND hold IS NULL"

// Nothing is delivered before the endpoint is validated; afterwards everything published before is. A handshake that
// fails leaves the event subscription held until an operator skips the validation.
func TestDeliveriesWaitForTheValidation(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, hang := newHanging(t, respondWithCode)
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, hang.begun)
	sub := put(t, tn, "billing", spec, id)
	require.Equal(t, catalog.ProvisioningCreating, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	publishAtOnce(t, tn, "e", 3)
	require.Equal(t, 3, tn.Count(t, notValidatedQuery))
	require.Len(t, e.requests(), 1)
	_, err := tn.System.Holds.Release(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	_, err = tn.System.Holds.Probe(t.Context(), topicName, "billing")
	require.ErrorIs(t, err, postgres.ErrNotValidated)

	hang.unblock()
	tn.AttemptsMade(t, 3)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", validatedSubscription))
	require.Zero(t, tn.Count(t,
		"SELECT count(*) FROM postrider_internal.event_subscription_states WHERE hold IS NOT NULL"))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "billing"))

	e, hang = newHanging(t, func(w http.ResponseWriter, r request) {
		if r.header.Get("Aeg-Event-Type") != "Notification" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	spec.EndpointURL = e.URL
	put(t, tn, "failing", spec, begin(t, tn, "failing", spec))
	publishOne(t, tn, "a")
	hang.unblock()
	tn.BecomeRows(t, 1, "event_subscriptions", "provisioning_state = 'Failed' AND hold = 'not_validated' "+
		"AND held_deliveries = 1")
	require.Equal(t, 1, tn.Rows(t, "handshakes", "state = 'failed' AND tries = 3 AND current"))

	spec.EndpointValidation = catalog.ValidationSkip
	require.Equal(t, catalog.ProvisioningSucceeded, put(t, tn, "failing", spec, 0).ProvisioningState)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
}

// A working endpoint is replaced only by a validated one. A first endpoint is stored without validation.
func TestWorkingEndpointIsKeptUntilAnotherIsValidated(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	before := newEndpoint(t, respondWith(http.StatusOK))
	e, hang := newHanging(t, respondWithCode)
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
	hang.unblock()
	require.NoError(t, tn.System.Handshakes.Wait(t.Context(), id, testnode.Timeout))
	kept, err := tn.System.Subscriptions.Get(t.Context(), topicName, "billing")
	require.NoError(t, err)
	require.Equal(t, old.Version, kept.Version)

	silent, _ := newHanging(t, respondWithCode)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Failed'")
	spec = validated(silent.URL, event.EventGrid)
	require.Equal(t, catalog.ProvisioningUpdating,
		put(t, tn, "billing", spec, begin(t, tn, "billing", spec)).ProvisioningState)
}

// A local job with its body in memory checks again whether its endpoint was replaced.
func TestLocalJobsAreNotSentToUnvalidatedEndpoints(t *testing.T) {
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
	hangFirst.unblock()
	tn.AttemptsMade(t, 1)
	// admission, because it waited for longer than a second
	tn.BecomeRows(t, 1, "deliveries", "hold IS NOT NULL")
	require.Empty(t, second.delivered())
	require.NoError(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code))
	tn.AttemptsMade(t, 1)
	require.Len(t, second.delivered(), 1)
}

// A user opens validationUrl: in time, during the request, before the response that leads to it was recorded, and too
// late. A handshake is used until it fails. A new one begins if all settings are stored again, or with another
// endpoint, but not with other changes.
func TestValidationURLIsOpened(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, nil)
	spec := validated(e.URL, event.EventGrid)
	complete := func(name, code string) error {
		return tn.System.Handshakes.CompleteValidation(t.Context(), topicName, name, code)
	}
	h := handshakeEnded(t, tn, "billing", spec)
	sub := put(t, tn, "billing", spec, h.ID)
	require.Equal(t, catalog.ProvisioningAwaiting, sub.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, sub.Hold.Reason)
	require.WithinDuration(t, h.ReadAt.Add(10*time.Minute), *h.CallbackExpiresAt, time.Minute)
	publishOne(t, tn, "a")
	require.ErrorIs(t, complete("billing", "guessed"), postgres.ErrNotFound)
	require.ErrorIs(t, complete("other", h.Code), postgres.ErrNotFound)
	require.Equal(t, 1, tn.Count(t, notValidatedQuery))
	require.NoError(t, complete("billing", h.Code))
	tn.AttemptsMade(t, 1)
	require.NoError(t, complete("billing", h.Code), "opened twice")
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", validatedSubscription))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "billing"))

	during, hang := newHanging(t, respondWith(http.StatusInternalServerError))
	other := validated(during.URL, event.EventGrid)
	id := begin(t, tn, "during", other)
	await(t, hang.begun)
	require.NoError(t, complete("during", handshakeOf(t, tn, id).Code))
	require.Equal(t, catalog.ProvisioningSucceeded, put(t, tn, "during", other, id).ProvisioningState)
	hang.unblock()
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	require.Equal(t, catalog.HandshakeSucceeded, handshakeOf(t, tn, id).State)
	require.Len(t, handshakeOf(t, tn, id).Steps, 2)
	require.Len(t, during.requests(), 1)

	h = handshakeEnded(t, tn, "late", spec)
	put(t, tn, "late", spec, h.ID)
	spec.Labels = []string{"a"}
	kept := put(t, tn, "late", spec, 0)
	require.Equal(t, catalog.ProvisioningAwaiting, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	require.Equal(t, h.ID, kept.HandshakeID)
	tn.Exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE id = $1", h.ID)
	require.ErrorIs(t, complete("late", h.Code), catalog.ErrValidationExpired)
	require.NoError(t, tn.System.Handshakes.Expire(t.Context()))
	require.Equal(t, catalog.HandshakeFailed, handshakeOf(t, tn, h.ID).State)
	require.ErrorIs(t, complete("late", h.Code), catalog.ErrValidationExpired)
	spec.Labels = []string{"b"}
	kept, err := tn.System.Subscriptions.Patch(t.Context(), topicName, "late", spec)
	require.NoError(t, err)
	require.Equal(t, catalog.ProvisioningFailed, kept.ProvisioningState)
	require.Equal(t, catalog.HoldNotValidated, kept.Hold.Reason)
	_, _, err = tn.System.Subscriptions.Put(t.Context(), topicName, "late", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	spec.EndpointURL += "/elsewhere"
	_, err = tn.System.Subscriptions.Patch(t.Context(), topicName, "late", spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
}

// A repeated handshake does not end the validation of an endpoint.
func TestRepeatedHandshake(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	status := make(chan int, 10)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if code := <-status; code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		respondWithCode(w, r)
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
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", validatedSubscription))
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
func TestSubscriptionAndHandshakeInAnyOrder(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWithCode)
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
	tn.BecomeRows(t, many, "event_subscriptions", validatedSubscription)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'handshake'")
	publishOne(t, tn, "a")
	tn.AttemptsMade(t, many)
}

// An attempt that read the holds before its event subscription got an endpoint without validation does not call it. The
// test removes the hold, as if it were too late.
func TestEndpointThatIsNotValidatedIsNotCalled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "alone", e.URL, nil)
	subscribe(t, tn, "batched", e.URL, batching(10, 64))
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Updating'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	startHandshakes(t, tn, nil)
	publishOne(t, tn, "a")
	tn.Become(t, 2, "SELECT count(*) FROM postrider_internal.all_deliveries d LEFT JOIN postrider_internal.batches b "+
		"ON b.id = d.open_batch_id WHERE coalesce(d.hold, b.hold) = 'not_validated'")
	require.Empty(t, e.requests())
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET provisioning_state = 'Succeeded'")
	tn.AttemptsMade(t, 2)
	require.Len(t, e.requests(), 2)
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

// A late response to an earlier handshake validates. Of two handshakes of one endpoint that was stored twice at once,
// the one that succeeds counts.
func TestOneOfTwoHandshakesValidates(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	startHandshakes(t, tn, nil)
	// slow's first request waits for its release.
	slow := func(first, later func(http.ResponseWriter, request)) (spec catalog.SubscriptionSpec, h *hanging) {
		h = &hanging{begun: make(chan request, 1), release: make(chan struct{})}
		var requests atomic.Int32
		e := newEndpoint(t, func(w http.ResponseWriter, r request) {
			if requests.Add(1) > 1 {
				later(w, r)
				return
			}
			h.begun <- r
			<-h.release
			first(w, r)
		})
		t.Cleanup(h.unblock)
		return validated(e.URL, event.EventGrid), h
	}
	spec, hang := slow(respondWithCode, respondWith(http.StatusOK))
	id := begin(t, tn, "late", spec)
	await(t, hang.begun)
	require.Equal(t, catalog.ProvisioningCreating, put(t, tn, "late", spec, id).ProvisioningState)
	require.Equal(t, catalog.ProvisioningAwaiting, again(t, tn, "late").ProvisioningState)
	hang.unblock()
	tn.BecomeRows(t, 1, "event_subscriptions", validatedSubscription)
	require.Equal(t, 1, tn.Rows(t, "handshakes", "state = 'succeeded' AND current"))

	spec, hang = slow(respondWith(http.StatusOK), respondWithCode)
	first := begin(t, tn, "twice", spec)
	await(t, hang.begun)
	second := handshakeEnded(t, tn, "twice", spec)
	require.Equal(t, catalog.ProvisioningCreating, put(t, tn, "twice", spec, first).ProvisioningState)
	sub := put(t, tn, "twice", spec, second.ID)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	require.Empty(t, sub.Hold.Reason)
	require.Equal(t, catalog.ProvisioningSucceeded, put(t, tn, "twice", spec, first).ProvisioningState,
		"the validation stays")
}
