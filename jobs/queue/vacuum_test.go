package queue_test

import (
	"fmt"
	"testing"

	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

func TestJobsAreVacuumedOnceManyAreDead(t *testing.T) {
	t.Parallel()
	// Sessions of a test before this one report its dead jobs late, in the same database.
	tn := testnode.Open(t, testdb.Clone(t), node.Options{Node: "node-1"})
	const count = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal' " +
		"AND relname = 'river_job'"
	die := func(jobs int) { // statistics that arrive later would count these jobs again after their vacuum
		tn.Exec(t, fmt.Sprintf(`INSERT INTO postrider_internal.river_job (state, args, kind, queue, max_attempts)
			SELECT 'available', '{}', 'deliver', 'deliveries', 1000 FROM generate_series(1, %d);
			DELETE FROM postrider_internal.river_job; SELECT pg_stat_force_next_flush()`, jobs))
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.river_job SET (autovacuum_enabled = false)")
	die(100)
	require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
	die(20_000)
	require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
	require.Equal(t, 1, tn.Count(t, count), "the table is vacuumed")
	require.NoError(t, tn.System.Maintenance.VacuumJobs(t.Context()))
	require.Equal(t, 1, tn.Count(t, count), "a hundred dead jobs are not worth it, nor is doing it twice")
}
