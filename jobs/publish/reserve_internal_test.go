package publish

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/postgres"
)

// reserving are the calls of reserve in a test.
type reserving struct {
	t *testing.T
	*bodies
	queued atomic.Int64
	got    chan int64 // the sizes of reservations, in their order
	held   chan *Reservation
}

func newReserving(t *testing.T) *reserving {
	t.Helper()
	return &reserving{t: t, bodies: newBodies(), got: make(chan int64, 10), held: make(chan *Reservation, 10)}
}

// now reserves memory that is free.
func (r *reserving) now(bytes int64) *Reservation {
	r.t.Helper()
	reservation, err := r.reserve(r.t.Context(), bytes, &r.queued)
	require.NoError(r.t, err)
	return reservation
}

// begin calls reserve, and returns when it waits or has returned.
func (r *reserving) begin(ctx context.Context, bytes int64) (failed chan error) {
	failed = make(chan error, 1)
	go func() {
		reservation, err := r.reserve(ctx, bytes, &r.queued)
		if err != nil {
			failed <- err
			return
		}
		r.got <- bytes
		r.held <- reservation
	}()
	synctest.Wait()
	return failed
}

const mib = 1 << 20

func TestReservationsAreFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReserving(t)
		first, second := r.now(largeBodies-mib), r.now(mib)
		r.begin(t.Context(), 2*mib)
		r.begin(t.Context(), mib)
		require.EqualValues(t, 2, r.queued.Load())
		second.Release()
		<-time.After(time.Second)
		require.Empty(t, r.got, "the smaller one does not overtake the larger one")
		first.Shrink(largeBodies - 2*mib)
		<-time.After(time.Second)
		require.EqualValues(t, 2*mib, <-r.got)
		require.Empty(t, r.got)
		first.Release()
		first.Release() // releases it once
		synctest.Wait()
		require.EqualValues(t, mib, <-r.got)
		require.EqualValues(t, 3*mib, r.large.reserved.Load())
		(<-r.held).Release()
		(<-r.held).Release()
		require.Zero(t, r.large.reserved.Load()+r.large.waiting.Load()+r.queued.Load())
		r.now(largeBodies).Release()
		r.now(10 * largeBodies).Release() // more than all of it
	})
}

func TestSmallRequestsDoNotWaitForLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReserving(t)
		large := r.now(largeBodies)
		waiting := r.begin(t.Context(), SmallBody+1)
		for range smallBodies / SmallBody {
			r.now(SmallBody)
		}
		large.Release()
		synctest.Wait()
		require.Empty(t, waiting)
		require.EqualValues(t, SmallBody+1, <-r.got)
		r.now(largeBodies - SmallBody - 1)
	})
}

// Small bodies wait in memory, so their sum is bounded.
func TestSmallRequestsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReserving(t)
		var held []*Reservation
		for range smallBodies / SmallBody {
			held = append(held, r.now(SmallBody))
		}
		ctx, leave := context.WithCancel(t.Context())
		for range waitingSmall / SmallBody {
			r.begin(ctx, SmallBody)
		}
		_, err := r.reserve(t.Context(), 1, &r.queued)
		require.EqualError(t, err, "too many bytes wait: more than 33554432 bytes of requests that were read; retry later, "+
			"or add nodes")
		leave()
		synctest.Wait()
		require.Zero(t, r.small.waiting.Load()+r.queued.Load())
		held[0].Release()
		r.now(1)
	})
}

func TestReservationsTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, began := newReserving(t), time.Now()
		held := r.now(largeBodies)
		ctx, leave := context.WithCancel(t.Context())
		left := r.begin(ctx, largeBodies)
		late := r.begin(t.Context(), mib)
		leave()
		require.ErrorIs(t, <-left, postgres.ErrUnavailable)
		err := <-late
		require.Equal(t, maxReserveTime, time.Since(began))
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.EqualError(t, err, "too many bytes wait: bodies of 1048576 bytes wait for the 16777216 bytes that this node "+
			"stores at once, and this one waited 10s; retry later, publish fewer large events at once, or add nodes")
		require.Zero(t, r.large.waiting.Load()+r.queued.Load())
		held.Release()
		r.now(largeBodies)
	})
}

func TestLargeRequestsHaveTheirOwnGroups(t *testing.T) {
	t.Parallel()
	p, req := NewPublisher(PublisherParts{}, PublisherOptions{}), request("orders")
	req.bytes = SmallBody
	require.Same(t, p.small, p.queue(req))
	req.bytes++
	require.Same(t, p.large, p.queue(req))
}

// The body of a large event is not copied for its attempt.
func TestKeptBodies(t *testing.T) {
	t.Parallel()
	e := &event.Event{Body: make([]byte, 500)}
	for _, row := range []struct {
		memory int
		keeps  bool
	}{{0, false}, {1000, true}, {1001, false}} {
		c := ownCopy(e, (&Publication{Memory: row.memory}).keeps(e))
		require.Equal(t, row.keeps, &c.Body[0] == &e.Body[0], row.memory)
	}
}
