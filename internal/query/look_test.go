package query_test

import (
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// TestDueDeliveriesAreFound: one query of an idle node finds everything that is due.
func TestDueDeliveriesAreFound(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	look := func() bool {
		found, err := tn.System.JobRows.Due(t.Context())
		require.NoError(t, err)
		return found
	}
	tn.Publish(t, "orders", "e", 1)
	require.False(t, look(), "an available job is for the fetchers")
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now()")
	require.True(t, look())
	for _, later := range []string{
		"state = 'scheduled', scheduled_at = now() + interval '1 hour'",
		"state = 'available', scheduled_at = now() + interval '5 seconds'", "state = 'running'",
	} {
		tn.Exec(t, "UPDATE postrider_internal.river_job SET "+later)
		require.False(t, look(), later)
	}
}
