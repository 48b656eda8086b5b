package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// Of nodes that claim at once, one gets the probe.
func TestOneProbeIsClaimed(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until)
		SELECT endpoint_hash, endpoint_base_url, now(), now() - interval '1 second'
		FROM postrider_internal.event_subscriptions`)
	tn.Publish(t, "orders", "e", 100)
	var key []byte
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT probation_key FROM postrider_internal.probations").Scan(&key))
	for range 30 {
		var claims atomic.Int64
		var nodes sync.WaitGroup
		for range 8 {
			nodes.Go(func() {
				if claimed, err := tn.System.Releaser.ClaimProbe(t.Context(), key); err != nil {
					t.Error(err)
				} else if claimed {
					claims.Add(1)
				}
			})
		}
		nodes.Wait()
		require.EqualValues(t, 1, claims.Load())
		tn.Exec(t, `UPDATE postrider_internal.river_job SET state = 'completed', finalized_at = now()
			WHERE finalized_at IS NULL`)
	}
}
