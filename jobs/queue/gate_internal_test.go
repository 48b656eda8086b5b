package queue

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

const lane1, lane2 = int64(1), int64(2)

func timeouts(g *Gate, subscription int64, n int) {
	for range n {
		g.Learn(subscription, policy.OutcomeTimedOut, policy.Result{Err: policy.ErrorTimeout})
	}
}

func TestGateBoundsOneSubscriptionAndNotTheOthers(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, lane1, 10)
	require.True(t, g.Enter(t.Context(), lane1, 0),
		"a call is always let through: nothing else would tell that the endpoint is back")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, g.Enter(canceled, lane1, 0))
	g.Learn(lane2, policy.OutcomeDelivered, policy.Result{Status: 200})
	for range 65 {
		require.True(t, g.Enter(t.Context(), lane2, 0))
	}
	require.False(t, g.Enter(canceled, lane2, 0))
	g.Leave(lane1)
	require.True(t, g.Enter(t.Context(), lane1, 0))
}

func TestGateLetsFewWaitAndGivesTheTurnInOrder(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, lane1, 10)
	require.True(t, g.Enter(t.Context(), lane1, 0))
	first, entered := g.join(lane1, 0)
	require.False(t, entered)
	second, _ := g.join(lane1, 0)
	require.NotNil(t, second)
	third, entered := g.join(lane1, 0)
	require.Nil(t, third, "with a cap of 1 two wait, and the next gives its worker back")
	require.False(t, entered)

	g.Leave(lane1)
	<-first
	select {
	case <-second:
		t.Fatal("one place, one turn")
	default:
	}
	g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	<-second
	require.False(t, g.stopWaiting(lane1, second), "the turn came: it must be taken")
}

func TestGateWaiterGivesUp(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	timeouts(g, lane1, 10)
	require.True(t, g.Enter(t.Context(), lane1, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.False(t, g.Enter(ctx, lane1, 0))
	g.Leave(lane1)
	require.True(t, g.Enter(t.Context(), lane1, 0), "who gave up takes no turn away")
}

func TestGateNeverExceedsItsCap(t *testing.T) {
	t.Parallel()
	g := NewGate(20, nil) // at most 10 in flight
	var mu sync.Mutex
	inFlight, most := 0, 0
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if !g.Enter(context.Background(), lane1, 0) {
				return
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
			mu.Lock()
			inFlight--
			mu.Unlock()
			g.Leave(lane1)
		})
	}
	group.Wait()
	require.LessOrEqual(t, most, 10)
	require.True(t, g.Enter(t.Context(), lane1, 0), "all places were given back")
}

func TestGateRoomFollowsTheCap(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	require.Equal(t, wavesPerCall*64, g.localCapacity(lane1, 0))
	require.True(t, g.Enter(t.Context(), lane1, 0))
	timeouts(g, lane1, 10)
	require.Equal(t, 2, g.localCapacity(lane1, 0), "silent: its one call and the next")
	g.Leave(lane1)
	require.Equal(t, wavesPerCall, g.localCapacity(lane1, 0))
	for range 1000 {
		g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	}
	require.Equal(t, 2000, g.localCapacity(lane1, quietQueue+1))
	require.Equal(t, soloCapacity, g.localCapacity(lane1, quietQueue), "nobody else waits")
}

// An endpoint that answers 503 keeps its cap, but its retries give way as soon as others wait.
func TestGateRoomOfAFailingEndpoint(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	fail := func(n int) {
		for range n {
			g.Learn(lane1, policy.OutcomeBusy, policy.Result{Status: 503})
		}
	}
	fail(failingStreak - 1)
	require.Equal(t, wavesPerCall*64, g.localCapacity(lane1, quietQueue+1))
	require.Empty(t, g.Failing())
	fail(1)
	require.Equal(t, []int64{lane1}, g.Failing())
	require.Equal(t, wavesPerCall*64, g.localCapacity(lane1, quietQueue), "nobody waits")
	require.Equal(t, 64/failingShare, g.localCapacity(lane1, quietQueue+1))
	g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	require.Equal(t, wavesPerCall*65, g.localCapacity(lane1, quietQueue+1))
	for range 1000 {
		g.Learn(lane1, policy.OutcomeBadRequest, policy.Result{Status: 400})
	}
	require.Greater(t, g.localCapacity(lane1, quietQueue), 2000,
		"it refuses at once and nobody waits: what it answers in a second is no burden")
}

// Endpoints that have never answered share half the workers, and each of them gets its first call.
func TestGateBoundsEndpointsThatNeverAnswered(t *testing.T) {
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
	g.Learn(healthy, policy.OutcomeDelivered, policy.Result{Status: 200})
	for range 64 {
		require.True(t, g.Enter(canceled, healthy, 0), "and whoever answers it has its whole cap")
	}
}

func TestGateFollowsTheLimitOfTheEventSubscription(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, g.Enter(canceled, lane1, 2))
	require.True(t, g.Enter(canceled, lane1, 2))
	require.False(t, g.Enter(canceled, lane1, 2))
	for range 100 {
		g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	}
	require.False(t, g.Enter(canceled, lane1, 2))
	require.False(t, g.Enter(canceled, lane1, 3), "raised: the cap grows with the next success")
	g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	require.True(t, g.Enter(canceled, lane1, 3))
	require.False(t, g.Enter(canceled, lane1, 3))
}

func TestAnswerRate(t *testing.T) {
	t.Parallel()
	var m answerRate
	start := time.Now()
	require.Zero(t, m.perSecond(start))
	for i := range 100 {
		m.add(start.Add(time.Duration(i) * 5 * time.Millisecond))
	}
	require.Equal(t, 100, m.perSecond(start.Add(500*time.Millisecond)), "this second's count, before it is over")
	m.add(start.Add(2 * time.Second))
	require.Equal(t, 50, m.perSecond(start.Add(2*time.Second)))
	require.Zero(t, m.perSecond(start.Add(6*time.Second)), "an endpoint that fell silent is not known to be quick")
}

func TestGateLetsManyWaitAtAQuickEndpoint(t *testing.T) {
	t.Parallel()
	g := NewGate(100, nil)
	g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200})
	for range 50 {
		require.True(t, g.Enter(t.Context(), lane1, 0))
	}
	for range 25 {
		turn, _ := g.join(lane1, 0)
		require.NotNil(t, turn, "a quarter of the workers may wait for an endpoint that answers")
	}
	turn, entered := g.join(lane1, 0)
	require.Nil(t, turn)
	require.False(t, entered)
}

// Event subscriptions that are made and deleted all day leave nothing behind. A call that is in flight, or waits, has
// its lane until it is over.
func TestGateForgetsWhoeverIsNotKnown(t *testing.T) {
	t.Parallel()
	g := NewGate(1000, nil)
	const known, idle = int64(3), int64(4)
	for _, id := range []int64{lane1, lane2, known, idle} {
		timeouts(g, id, failingStreak)
	}
	require.True(t, g.Enter(t.Context(), lane1, 0))
	turn, entered := g.join(lane1, 0)
	require.False(t, entered)
	require.True(t, g.Enter(t.Context(), lane2, 0))
	forget := func() { g.Forget(func(id int64) bool { return id == known }) }

	forget()
	require.ElementsMatch(t, []int64{lane1, lane2, known}, g.Failing())
	g.Leave(lane2)
	g.Leave(lane1)
	<-turn
	forget()
	require.ElementsMatch(t, []int64{lane1, known}, g.Failing(), "the one that waited is in flight now")
	g.Leave(lane1)
	g.Learn(lane1, policy.OutcomeDelivered, policy.Result{Status: 200}) // once more, late
	forget()
	require.True(t, g.Knows(known))
	require.Len(t, g.destinations, 1)
	require.Zero(t, g.waiting)
}

func TestGateKeepsWorkersFromBlockedResults(t *testing.T) {
	t.Parallel()
	g := NewGate(100, nil)
	for _, lane := range []int64{lane1, lane2} {
		g.Learn(lane, policy.OutcomeDelivered, policy.Result{Status: 200})
	}
	g.Block(lane1, 24)
	require.True(t, g.Enter(t.Context(), lane1, 0))
	g.Block(lane1, 1)
	require.False(t, g.Enter(t.Context(), lane1, 0), "a quarter of the workers waits for a lock")
	require.Zero(t, g.localCapacity(lane1, 0))
	require.True(t, g.Enter(t.Context(), lane2, 0), "no result of this one is blocked")
	require.Positive(t, g.localCapacity(lane2, 0))
	g.Block(lane1, -25)
	require.True(t, g.Enter(t.Context(), lane1, 0))
}
