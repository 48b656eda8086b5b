package publish

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

func request(topic string) *publishRequest {
	return &publishRequest{
		Publication: Publication{Topic: topic}, Receipt: Receipt{Topic: &catalog.Topic{ID: 1, Name: topic}},
		done: make(chan error, 1),
	}
}

func TestRequestHasOneResponse(t *testing.T) {
	t.Parallel()
	a, b := request("a"), request("b")
	a.respond(nil)
	require.NoError(t, <-a.done, "the publisher reads the response while the rest of the group is still being committed")
	require.Equal(t, []*publishRequest{b}, unfinished([]*publishRequest{a, b}))
	a.respond(postgres.ErrUnavailable)
	require.Empty(t, a.done)
}

func TestRefilterDoesNotChangeTheCallersGroup(t *testing.T) {
	t.Parallel()
	gone, kept := request("gone"), request("kept")
	snapshot := catalog.NewSnapshot(7, []*catalog.Topic{{ID: 1, Name: "kept"}}, nil, nil)
	group := []*publishRequest{gone, kept}

	require.Equal(t, []*publishRequest{kept}, refilter(group, snapshot))
	require.Equal(t, []*publishRequest{gone, kept}, group)
	require.ErrorIs(t, <-gone.done, postgres.ErrNotFound)
	require.Empty(t, kept.done)
}

// The events of a topic that has begun to detect duplicates are checked, whatever queue they were in.
func TestRefilterPostponesRequestsOfTopicsThatDetectDuplicates(t *testing.T) {
	t.Parallel()
	req := request("orders")
	orders := &catalog.Topic{ID: 1, Name: "orders", DuplicateWindow: time.Minute}
	snapshot := catalog.NewSnapshot(7, []*catalog.Topic{orders}, nil, nil)
	require.Empty(t, refilter([]*publishRequest{req}, snapshot))
	require.Empty(t, req.done)
	require.True(t, req.keyed && req.postponed)
	req.postponed = false
	require.Len(t, refilter([]*publishRequest{req}, snapshot), 1, "in the queue of keyed requests it continues")
}

// A group waits until the workers have fetched the jobs of the groups before, and not at a stop. Requests that arrive
// meanwhile join it.
func TestGroupsWaitWhileWorkersCannotKeepUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := queue.NewBackpressure(queue.NewGate(1000, nil))
		single, batches, pulled := &catalog.Subscription{}, &catalog.Subscription{}, &catalog.Subscription{}
		batches.MaxEventsPerBatch = new(10)
		pulled.DeliveryConfiguration = &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue}
		ctx, stop := context.WithCancel(t.Context())
		waits := func(p *Publisher, subscriptions ...*catalog.Subscription) (took time.Duration, joined bool) {
			first, later := request("a"), request("a")
			first.subscribers = [][]*catalog.Subscription{subscriptions}
			began := time.Now()
			first.queued, later.queued = began.Add(-time.Hour), began.Add(-time.Hour)
			p.pace(ctx, []*publishRequest{first}, func() []*publishRequest { return []*publishRequest{later} })
			require.ErrorIs(t, <-first.done, errQueuedTooLong)
			if joined = len(later.done) > 0; joined {
				require.ErrorIs(t, <-later.done, errQueuedTooLong)
			}
			return time.Since(began), joined
		}
		p := &Publisher{PublisherParts: PublisherParts{Backpressure: slow}}
		took, joined := waits(p, single)
		require.Zero(t, took, "no job waits")
		require.False(t, joined)
		due := time.Now()
		late := &rivertype.JobRow{
			CreatedAt: due, ScheduledAt: due, AttemptedAt: new(due.Add(2 * time.Second)), EncodedArgs: []byte("{}"),
		}
		for range 100 {
			slow.Fetched([]*rivertype.JobRow{late}, 1)
		}
		slow.Created(due, 5000)
		took, joined = waits(p, batches, pulled)
		require.Zero(t, took, "a group without jobs")
		require.False(t, joined)
		took, joined = waits(p, batches, single)
		require.Equal(t, time.Second, took)
		require.True(t, joined)
		took, _ = waits(&Publisher{}, single)
		require.Zero(t, took, "a node that makes no attempts")
		stop()
		took, _ = waits(p, single)
		require.Zero(t, took)
	})
}

func TestIsolate(t *testing.T) {
	t.Parallel()
	poison := &pgconn.PgError{Code: "22021"}
	outage := &pgconn.PgError{Code: "57P01"}
	failing := func(bad int, err error) (func([]int) error, *[]int) {
		var done []int
		return func(group []int) error {
			for _, item := range group {
				if item == bad {
					return err
				}
			}
			done = append(done, group...)
			return nil
		}, &done
	}
	t.Run("the rejected item is isolated", func(t *testing.T) {
		t.Parallel()
		var rejected []int
		do, done := failing(5, poison)
		require.NoError(t, postgres.Isolate([]int{1, 2, 3, 4, 5, 6, 7}, do,
			func(item int, _ error) error { rejected = append(rejected, item); return nil }))
		require.Equal(t, []int{5}, rejected)
		require.ElementsMatch(t, []int{1, 2, 3, 4, 6, 7}, *done)
	})
	t.Run("an outage rejects no item", func(t *testing.T) {
		t.Parallel()
		do, _ := failing(5, outage)
		require.ErrorIs(t,
			postgres.Isolate([]int{4, 5, 6}, do, func(int, error) error { t.Error("rejected"); return nil }), outage)
	})
	t.Run("an outage during the rejection is returned", func(t *testing.T) {
		t.Parallel()
		do, _ := failing(5, poison)
		require.ErrorIs(t, postgres.Isolate([]int{4, 5, 6}, do, func(int, error) error { return outage }), outage)
	})
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err                       error
		poison, transient, outage bool
	}{
		"invalid text":           {&pgconn.PgError{Code: "22021"}, true, false, false},
		"check violated":         {&pgconn.PgError{Code: "23514", ConstraintName: "c"}, true, false, false},
		"no partition":           {&pgconn.PgError{Code: "23514"}, false, false, false},
		"statement too complex":  {&pgconn.PgError{Code: "54001"}, true, false, false},
		"deadlock":               {&pgconn.PgError{Code: "40P01"}, false, true, false},
		"serialization failure":  {&pgconn.PgError{Code: "40001"}, false, true, false},
		"administrator shutdown": {&pgconn.PgError{Code: "57P01"}, false, false, true},
		"disk full":              {&pgconn.PgError{Code: "53100"}, false, false, true},
		"lock not available":     {&pgconn.PgError{Code: "55P03"}, false, false, true},
		"no such table":          {&pgconn.PgError{Code: "42P01"}, false, false, false},
		"our own":                {errors.New("x"), false, false, false},
	} {
		require.Equal(t, row.poison, postgres.IsPoison(row.err), name)
		require.Equal(t, row.transient, postgres.IsTransient(row.err), name)
		require.Equal(t, row.outage, postgres.IsOutage(row.err), name)
	}
}
