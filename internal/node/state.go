package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/pgdev"
	"postrider/internal/postgres"
	"postrider/jobs"
)

// keptSchema has the copies of rows for Reset.
const keptSchema = "postrider_dev"

// What a reset does with tables: the others are restored. Tests require that each name is that of a table.
var (
	// ResetUntouched have accounts, and what nodes and River need to go on.
	ResetUntouched = []string{
		"goose_db_version", "migration_checksums", "river_migration", "river_notification", "river_leader", "river_queue",
		"nodes", "locks", "catalog", "encryption_keys", "users", "api_keys", "sessions", "query_logins", "queries",
	}
	// ResetEmptied have events and what became of them.
	ResetEmptied = []string{
		"river_job", "events", "routes", "sql_publishes", "idempotency_keys", "event_keys", "deliveries",
		"delivery_history", "delivery_attempts", "batches", "left_members", "dead_letters", "exports", "repairs",
		"rollup_deltas", "rollups", "rollup_sums", "backlog_counts", "operation_outcomes", "operations", "notices",
		"problems", "probations", "delivery_rates", "relay_feeds",
	}
)

// ResetFate is what a reset does with a table.
func ResetFate(table string) pgdev.Fate {
	switch {
	case slices.Contains(ResetUntouched, table):
		return pgdev.Untouched
	case slices.Contains(ResetEmptied, table):
		return pgdev.Emptied
	default:
		return pgdev.Restored
	}
}

// State is the configuration of a postrider dev at some moment.
type State struct {
	// LockTime is how long Reset tries to lock the tables: 10 s from KeepState.
	LockTime time.Duration

	system *System
	rows   *pgdev.KeptRows
	lock   string
}

// KeepState copies the configuration, for Reset, which needs a superuser.
func (s *System) KeepState(ctx context.Context) (*State, error) {
	kept := &State{LockTime: 10 * time.Second, system: s}
	err := pgx.BeginFunc(ctx, s.DB.Pool, func(tx pgx.Tx) error {
		var err error
		kept.rows, err = pgdev.KeepRows(ctx, tx, keptSchema, ResetFate)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keep the configuration: %w", err)
	}
	// If a lock is not free soon, all are released and requested again: transactions of the node lock these tables in
	// other orders. The check for deadlocks also cancels autovacuum, and by default begins after a second.
	kept.lock = "SET LOCAL lock_timeout = '200ms'; SET LOCAL deadlock_timeout = '10ms'; " +
		"LOCK TABLE " + strings.Join(kept.rows.Tables, ", ") + " IN EXCLUSIVE MODE; "
	return kept, nil
}

// restore deletes all events with what became of them, and replaces the configuration by the kept one. Transactions
// that write wait, and then find no row of theirs: sequences go on, so no id is given again.
func (k *State) restore(ctx context.Context) error {
	const newVersion = "SELECT postrider_internal.next_catalog_version();\n"
	for until := time.Now().Add(k.LockTime); ; {
		err := pgx.BeginFunc(ctx, k.system.DB.Pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, k.lock+newVersion+k.rows.Restore, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err == nil || !slices.Contains([]string{"55P03", "40P01"}, postgres.SQLState(err)) {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%w: %w", postgres.ErrLocked, err)
		}
	}
}

// Reset restores the state, and ends what the engine does for the rows before, see jobs.Engine.Reset. ErrLocked.
func (k *State) Reset(ctx context.Context, engine *jobs.Engine) error {
	if err := engine.Reset(ctx, k.restore); err != nil {
		return fmt.Errorf("reset the state: %w", err)
	}
	return nil
}
