package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// vacuumDead and a fifth of the live jobs are how many jobs must be dead: less than those of a second at 5,000
	// events/s, while the jobs of a long backlog are not read again and again.
	vacuumDead = 10_000
	// By default a vacuum skips the indexes of a table that is nearly empty; here they are its purpose.
	vacuumStatement = `VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) postrider_internal.river_job`
)

var deadJobsStatement = sqlFile("deadjobs.sql")

// VacuumJobs vacuums the table of jobs if many are dead. Autovacuum looks at a database once a minute
// (autovacuum_naptime, which no table can set for itself): at 5,000 events/s that is 300,000 dead jobs, and each fetch
// steps over the index pages of all of them to the first that lives. Where somebody vacuums already, or this role may
// not, nothing happens. What the last one could not remove, as while somebody's transaction stays open, is no reason
// for the next one.
func (m *Maintenance) VacuumJobs(ctx context.Context) error {
	dead, due := int64(0), false
	err := m.db.QueryRow(ctx, deadJobsStatement, vacuumDead, m.deadLeft.Load()).Scan(&dead, &due)
	if due {
		if _, err = m.db.Exec(ctx, vacuumStatement); err == nil {
			err = m.db.QueryRow(ctx, deadJobsStatement, vacuumDead, 0).Scan(&dead, &due)
		}
		m.deadLeft.Store(dead)
	} else if dead < m.deadLeft.Load() {
		m.deadLeft.Store(dead) // somebody else's vacuum removed them
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("vacuum the table of jobs: %w", err)
	}
	return nil
}
