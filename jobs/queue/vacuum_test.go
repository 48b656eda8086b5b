package queue_test

import (
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

func TestJobsAreVacuumedOnceManyAreDead(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	const count = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal' " +
		"AND relname = 'river_job'"
	die := func(jobs int) {
		tn.Exec(t,
			`INSERT INTO postrider_internal.river_job (state, args, kind, queue, max_attempts) SELECT 'available', '{}',
				    'deliver', 'deliveries', 1000 FROM generate_series(1, $1)`, jobs)
		tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.river_job SET (autovacuum_enabled = false)")
	die(100)
	require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
	die(20_000)
	testnode.Within(t, "the table is vacuumed", func() bool { // statistics arrive late
		require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
		return tn.Count(t, count) == 1
	})
	require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
	require.Equal(t, 1, tn.Count(t, count), "a hundred dead jobs are not worth it, nor is doing it twice")
}
