package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

const subA, subB = int64(1), int64(2)

func timeouts(g *Gate, subscription int64, n int) {
	for range n {
		g.Observe(subscription, policy.OutcomeTimedOut, policy.Result{Err: policy.ErrorTimeout}, 0)
	}
}

func TestGateBoundsOneSubscriptionAndNotTheOthers(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, subA, 10)
	require.True(t, g.Enter(t.Context(), subA, 0),
		"one call is always made: only a call shows that the endpoint responds again")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, g.Enter(canceled, subA, 0))
	g.Observe(subB, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	for range 65 {
		require.True(t, g.Enter(t.Context(), subB, 0))
	}
	require.False(t, g.Enter(canceled, subB, 0))
	g.Leave(subA)
	require.True(t, g.Enter(t.Context(), subA, 0))
}

// A response 429 halves the requests in flight, once for those that began before it. It is no failure of the endpoint.
func TestGateThrottled(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, time.Second)
	for range 20 {
		require.True(t, g.Enter(t.Context(), subA, 0))
	}
	require.Zero(t, g.Spacing(subA))
	for range 3 {
		require.False(t, g.ObserveThrottled(subA, time.Hour))
		g.Leave(subA)
	}
	require.Equal(t, 10, g.destinations[subA].cap.Value())
	require.Empty(t, g.Failing())
	require.LessOrEqual(t, g.localCapacity(subA, 0), wavesPerCall*10, "no queue that would return to hold at the next 429")
	_, entered := g.join(subA, 0)
	require.False(t, entered)
	for range 8 {
		g.Leave(subA)
	}
	require.True(t, g.full(subA), "the waiter has entered")
	require.Zero(t, g.Spacing(subA))
	require.Positive(t, g.Spacing(subA), "the next request begins later")
	for range 9 {
		g.Leave(subA)
	}
	require.True(t, g.ObserveThrottled(subA, 0), "no other request is in flight")
}

func TestGateAdmitsWaitersInOrder(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, subA, 10)
	require.True(t, g.Enter(t.Context(), subA, 0))
	first, entered := g.join(subA, 0)
	require.False(t, entered)
	second, _ := g.join(subA, 0)
	require.NotNil(t, second)
	third, entered := g.join(subA, 0)
	require.Nil(t, third, "with a cap of 1 two wait, and the next releases its worker")
	require.False(t, entered)

	g.Leave(subA)
	<-first
	select {
	case <-second:
		t.Fatal("one attempt ended, so one waiter enters")
	default:
	}
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	<-second
	require.False(t, g.stopWaiting(subA, second), "it has entered and must leave")
}

func TestGateWaiterTimesOut(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, subA, 10)
	require.True(t, g.Enter(t.Context(), subA, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.False(t, g.Enter(ctx, subA, 0))
	g.Leave(subA)
	require.True(t, g.Enter(t.Context(), subA, 0), "a waiter that timed out does not enter")
}

func TestGateNeverExceedsItsCap(t *testing.T) {
	t.Parallel()
	g := NewGate(20, nil) // at most 10 in flight
	var mu sync.Mutex
	inFlight, most := 0, 0
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if !g.Enter(context.Background(), subA, 0) {
				return
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
			mu.Lock()
			inFlight--
			mu.Unlock()
			g.Leave(subA)
		})
	}
	group.Wait()
	require.LessOrEqual(t, most, 10)
	require.True(t, g.Enter(t.Context(), subA, 0), "all attempts have ended")
}

func TestGateCapacityFollowsTheCap(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	require.Equal(t, wavesPerCall*64, g.localCapacity(subA, 0))
	require.True(t, g.Enter(t.Context(), subA, 0))
	timeouts(g, subA, 10)
	require.Equal(t, 2, g.localCapacity(subA, 0), "silent: its one call and the next")
	g.Leave(subA)
	require.Equal(t, wavesPerCall, g.localCapacity(subA, 0))
	for range 1000 {
		g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	}
	require.Equal(t, 2000, g.localCapacity(subA, quietQueue+1))
	require.Equal(t, soloCapacity, g.localCapacity(subA, quietQueue), "no other event subscription has jobs")
}

// A slow endpoint has a short queue. While it is alone, all of its jobs may wait.
func TestGateOfASlowEndpoint(t *testing.T) {
	t.Parallel()
	const workers, limit = 100, 10
	slow := func(limit int, took time.Duration) *Gate {
		g := NewGate(workers, nil)
		g.destination(subA).cap = policy.NewCap(limit, workers)
		g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, took)
		return g
	}
	waiting := func(g *Gate) (n int) {
		for {
			switch waits, entered := g.join(subA, 0); {
			case waits != nil:
				n++
			case !entered:
				return n
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := slow(limit, 100*time.Millisecond)
		require.Equal(t, wavesPerCall*limit, g.localCapacity(subA, quietQueue+1))
		require.Equal(t, limit+50, g.localCapacity(subA, quietQueue))
		require.Equal(t, 50, waiting(g))
		g.localCapacity(subA, quietQueue+1)
		for range 50 {
			g.Leave(subA)
		}
		require.Equal(t, workers/quickShare, waiting(g), "the other workers are for other event subscriptions")

		g = slow(limit, time.Second)
		require.Equal(t, limit+5, g.localCapacity(subA, quietQueue))
		require.Equal(t, limit+5, g.localCapacity(subA, quietQueue+1))
		for range 100 {
			g.Observe(subA, policy.OutcomeBadRequest, policy.Result{Status: 400}, time.Millisecond)
			g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, time.Second)
		}
		require.Equal(t, limit+100, g.localCapacity(subA, quietQueue), "some of its failures are faster")
		require.Equal(t, 2, slow(1, 2*time.Second).localCapacity(subA, quietQueue))
	})
}

// An endpoint that responds 503 keeps its cap, but only few of its retries are queued while others wait.
func TestGateCapacityOfAFailingEndpoint(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	fail := func(n int) {
		for range n {
			g.Observe(subA, policy.OutcomeBusy, policy.Result{Status: 503}, 0)
		}
	}
	fail(failingStreak - 1)
	require.Equal(t, wavesPerCall*64, g.localCapacity(subA, quietQueue+1))
	require.Empty(t, g.Failing())
	fail(1)
	require.Equal(t, []int64{subA}, g.Failing())
	require.Equal(t, wavesPerCall*64, g.localCapacity(subA, quietQueue), "no other event subscription has jobs")
	require.Equal(t, 64/failingShare, g.localCapacity(subA, quietQueue+1))
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	require.Equal(t, wavesPerCall*65, g.localCapacity(subA, quietQueue+1))
	for range 1000 {
		g.Observe(subA, policy.OutcomeBadRequest, policy.Result{Status: 400}, 0)
	}
	require.Greater(t, g.localCapacity(subA, quietQueue), 2000,
		"it responds at once and no other event subscription has jobs")
}

// Endpoints that have never responded share half the workers, and each of them gets its first call.
func TestGateBoundsEndpointsThatNeverResponded(t *testing.T) {
	t.Parallel()
	const workers, hanging = 1000, 20
	g := NewGate(workers, nil)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	calls := 0
	for id := range int64(hanging) {
		for g.Enter(canceled, id, 0) {
			calls++
		}
		require.Positive(t, g.destination(id).inFlight)
	}
	require.LessOrEqual(t, calls, workers/unprovenShare+hanging)
	const healthy = int64(hanging)
	require.True(t, g.Enter(canceled, healthy, 0), "a first call is always made")
	g.Observe(healthy, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	for range 64 {
		require.True(t, g.Enter(canceled, healthy, 0), "an endpoint that responds has its whole cap")
	}
	const full = healthy + 1
	require.True(t, g.Enter(canceled, full, 0))
	g.Observe(full, policy.OutcomeFull, policy.Result{Err: policy.ErrorFull}, 0)
	for range 63 {
		require.True(t, g.Enter(canceled, full, 0), "so has a broker that rejects")
	}
}

func TestGateFollowsTheLimitOfTheEventSubscription(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, g.Enter(canceled, subA, 2))
	require.True(t, g.Enter(canceled, subA, 2))
	require.False(t, g.Enter(canceled, subA, 2))
	for range 100 {
		g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	}
	require.False(t, g.Enter(canceled, subA, 2))
	require.False(t, g.Enter(canceled, subA, 3), "raised: the cap grows with the next success")
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	require.True(t, g.Enter(canceled, subA, 3))
	require.False(t, g.Enter(canceled, subA, 3))
}

func TestRate(t *testing.T) {
	t.Parallel()
	var responses rate
	start := time.Now()
	require.Zero(t, responses.perSecond(start))
	for i := range 100 {
		responses.add(start.Add(time.Duration(i)*5*time.Millisecond), 1)
	}
	require.Equal(t, 100, responses.perSecond(start.Add(500*time.Millisecond)), "this second's count, before it is over")
	responses.add(start.Add(2*time.Second), 1)
	require.Equal(t, 50, responses.perSecond(start.Add(2*time.Second)))
	require.Zero(t, responses.perSecond(start.Add(6*time.Second)), "an endpoint that is silent now has no rate")
}

func TestGateAdmitsManyWaitersAtAFastEndpoint(t *testing.T) {
	t.Parallel()
	g := NewGate(100, nil)
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	for range 50 {
		require.True(t, g.Enter(t.Context(), subA, 0))
	}
	for range 25 {
		turn, _ := g.join(subA, 0)
		require.NotNil(t, turn, "a quarter of the workers may wait for an endpoint that responds")
	}
	turn, entered := g.join(subA, 0)
	require.Nil(t, turn)
	require.False(t, entered)
}

// Deleted event subscriptions are forgotten, unless a call is in flight or waits.
func TestGateForgetsDeletedEventSubscriptions(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	const known, idle = int64(3), int64(4)
	for _, id := range []int64{subA, subB, known, idle} {
		timeouts(g, id, failingStreak)
	}
	require.True(t, g.Enter(t.Context(), subA, 0))
	turn, entered := g.join(subA, 0)
	require.False(t, entered)
	require.True(t, g.Enter(t.Context(), subB, 0))
	forget := func() { g.Forget(func(id int64) bool { return id == known }) }

	forget()
	require.ElementsMatch(t, []int64{subA, subB, known}, g.Failing())
	g.Leave(subB)
	g.Leave(subA)
	<-turn
	forget()
	require.ElementsMatch(t, []int64{subA, known}, g.Failing(), "the waiter is in flight now")
	g.Leave(subA)
	g.Observe(subA, policy.OutcomeDelivered, policy.Result{Status: 200}, 0) // once more, late
	forget()
	require.True(t, g.Knows(known))
	require.Len(t, g.destinations, 1)
	require.Zero(t, g.waiting)
}

func TestGateBlocksEndpointsWithBlockedResults(t *testing.T) {
	t.Parallel()
	g := NewGate(100, nil)
	for _, id := range []int64{subA, subB} {
		g.Observe(id, policy.OutcomeDelivered, policy.Result{Status: 200}, 0)
	}
	g.Block(subA, 24)
	require.True(t, g.Enter(t.Context(), subA, 0))
	g.Block(subA, 1)
	require.False(t, g.Enter(t.Context(), subA, 0), "a quarter of the workers waits for a lock")
	require.Zero(t, g.localCapacity(subA, 0))
	require.True(t, g.Enter(t.Context(), subB, 0), "no result of this one is blocked")
	require.Positive(t, g.localCapacity(subB, 0))
	g.Block(subA, -25)
	require.True(t, g.Enter(t.Context(), subA, 0))
}
