package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJobsAreVacuumedOnceManyAreDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const count = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal' " +
		"AND relname = 'river_job'"
	die := func(jobs int) {
		b.exec(t,
			`INSERT INTO postrider_internal.river_job (state, args, kind, queue, max_attempts) SELECT 'available', '{}',
				    'deliver', 'deliveries', 1000 FROM generate_series(1, $1)`, jobs)
		b.exec(t, "DELETE FROM postrider_internal.river_job")
	}
	b.exec(t, "ALTER TABLE postrider_internal.river_job SET (autovacuum_enabled = false)")
	die(100)
	require.NoError(t, b.store.Maintenance.VacuumJobs(t.Context()))
	die(20_000)
	require.Eventually(t, func() bool { // statistics arrive late
		require.NoError(t, b.store.Maintenance.VacuumJobs(t.Context()))
		return b.count(t, count) == 1
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, b.store.Maintenance.VacuumJobs(t.Context()))
	require.Equal(t, 1, b.count(t, count), "a hundred dead jobs are not worth it, nor is doing it twice")
}
