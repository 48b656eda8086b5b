package jobs_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs"
)

const overdue = "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 minute'"

// A node that fetches nothing, here because River's table pauses the queue, reports that.
func TestStalledNodeReportsIt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", newEndpoint(t, respondWith(http.StatusOK)).URL, nil)
	tn.Exec(t, "INSERT INTO postrider_internal.river_queue (name, created_at, updated_at, paused_at) "+
		"VALUES ('deliveries', now(), now(), now())")
	publishOne(t, tn, "a")
	tn.Exec(t, overdue)
	e := tn.Engine(t, func(o *jobs.Options) { o.CheckProgressEvery(20 * time.Millisecond) })
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, e) })
	testnode.Within(t, `e.Stats().Stalled >= 100*time.Millisecond`,
		func() bool { return e.Stats().Stalled >= 100*time.Millisecond })
}

// The node is not stalled if nothing is due, or due deliveries are held or locked by a user.
func TestIdleNodeIsNotStalled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sink := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "locked", sink.URL, nil)
	publishOne(t, tn, "locked")
	tn.Exec(t, overdue)
	subscribe(t, tn, "paused", sink.URL, nil)
	_, err := tn.System.Holds.Pause(t.Context(), topicName, "paused", nil)
	require.NoError(t, err)
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM postrider_internal.river_job FOR UPDATE")
	require.NoError(t, err)

	e := tn.Engine(t, func(o *jobs.Options) { o.CheckProgressEvery(time.Millisecond) })
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, e) })
	publishOne(t, tn, "delivered and held")
	require.Equal(t, "delivered and held", tn.Attempt(t).EventID)
	beats := tn.Count(t, "SELECT beat FROM postrider_internal.nodes")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.nodes WHERE beat >= $1", beats+2) // many checks later
	require.Zero(t, e.Stats().Stalled)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "hold = 'paused'"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "locked", tn.Attempt(t).EventID)
}
