package jobs_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/jobs"
)

const overdue = "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 minute'"

// A node that fetches nothing, here because River's table pauses the queue, reports that.
func TestStalledNodeReportsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "all", newEndpoint(t, respondWith(http.StatusOK)).URL, nil)
	b.exec(t, "INSERT INTO postrider_internal.river_queue (name, created_at, updated_at, paused_at) "+
		"VALUES ('deliveries', now(), now(), now())")
	b.publishOne(t, "a")
	b.exec(t, overdue)
	e := b.newEngine(t, b.store, func(o *jobs.Options) { o.CheckProgressEvery(20 * time.Millisecond) })
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, e) })
	require.Eventually(t, func() bool { return e.Stats().Stalled >= 100*time.Millisecond }, waitTimeout, tick)
}

// The node is not stalled if nothing is due, or due deliveries are held or locked by a user.
func TestIdleNodeIsNotStalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sink := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "locked", sink.URL, nil)
	b.publishOne(t, "locked")
	b.exec(t, overdue)
	b.subscribe(t, "paused", sink.URL, nil)
	_, err := b.store.Holds.Pause(t.Context(), topicName, "paused", nil)
	require.NoError(t, err)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM postrider_internal.river_job FOR UPDATE")
	require.NoError(t, err)

	e := b.newEngine(t, b.store, func(o *jobs.Options) { o.CheckProgressEvery(time.Millisecond) })
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, e) })
	b.publishOne(t, "delivered and held")
	require.Equal(t, "delivered and held", b.attempt(t).EventID)
	beats := b.count(t, "SELECT beat FROM postrider_internal.nodes")
	b.become(t, 1, "SELECT count(*) FROM postrider_internal.nodes WHERE beat >= $1", beats+2) // many checks later
	require.Zero(t, e.Stats().Stalled)
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'paused'"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "locked", b.attempt(t).EventID)
}
