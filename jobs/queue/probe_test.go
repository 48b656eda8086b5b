package queue_test

import (
	"sync/atomic"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Of nodes that claim at once, one gets the probe.
func TestOneProbeIsClaimed(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until)
		SELECT endpoint_hash, endpoint_base_url, now(), now() - interval '1 second'
		FROM postrider_internal.event_subscriptions`)
	tn.Publish(t, "orders", "e", 100)
	key := testnode.Value[[]byte](t, tn, "SELECT probation_key FROM postrider_internal.probations")
	for range 10 {
		var claims atomic.Int64
		testnode.AtOnce(8, func(int) {
			if claimed, err := tn.System.Releaser.ClaimProbe(t.Context(), key); assert.NoError(t, err) && claimed {
				claims.Add(1)
			}
		})
		require.EqualValues(t, 1, claims.Load())
		tn.Exec(t, `UPDATE postrider_internal.river_job SET state = 'completed', finalized_at = now()
			WHERE finalized_at IS NULL`)
	}
}
