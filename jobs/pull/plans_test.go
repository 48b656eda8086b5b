package pull_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// rowsRead is how many rows of a table and its partitions a statement reads.
func rowsRead(t *testing.T, tx pgx.Tx, table, statement string, args ...any) (rows int) {
	t.Helper()
	const count = `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
		FROM pg_stat_xact_all_tables WHERE schemaname = 'postrider_internal' AND relname ~ ('^' || $1 || '(_\d{8})?$')`
	var before int
	require.NoError(t, tx.QueryRow(t.Context(), count, table).Scan(&before))
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), statement, args...)))
	require.NoError(t, tx.QueryRow(t.Context(), count, table).Scan(&rows))
	return rows - before
}

const receiveTen = "SELECT * FROM postrider_internal.receive_deliveries($1, 10, 8388608, NULL, 'test')"

// A session keeps the plan that finds the settings of an event subscription, also when there were few rows.
func TestReceivesFindSettingsByKey(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 0)
	tn.Exec(t, "VACUUM ANALYZE")
	tx := tn.Begin(t)
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), receiveTen, sub.ID)))
	// In each index they precede the rows that the receive needs: a scan of it meets them first.
	tn.Exec(t, `INSERT INTO postrider_internal.topics (id, name, kind, input_schema, key1_sealed, key2_sealed, key1_hash,
		    key2_hash)
		SELECT -i, 'a-' || i, 'basic', 'CloudEventSchemaV1_0', '', '', sha256(i::text::bytea), sha256((-i)::text::bytea)
		  FROM generate_series(1, 1000) i`)
	tn.CopySubscription(t, sub.ID, "jsonb_build_object('id', -i, 'name', 'a-' || i)", 1000)
	for _, statistics := range []string{"few rows", "many rows"} {
		for _, table := range []string{"topics", "event_subscriptions"} {
			read := rowsRead(t, tx, table, receiveTen, sub.ID)
			require.Positive(t, read, "%s: %s", statistics, table)
			require.LessOrEqual(t, read, 2, "%s: %s", statistics, table)
		}
		tn.Exec(t, "ANALYZE postrider_internal.topics, postrider_internal.event_subscriptions")
	}
}

// A receive that ends deliveries with attempts of batches reads their attempts, and not those of all batches.
func TestExhaustedDeliveriesFindTheirAttempts(t *testing.T) {
	t.Parallel()
	const batches = 20_000
	tn, sub := pulled(t, 1, 10)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET attempts = 1")
	tn.Exec(t, `INSERT INTO postrider_internal.batches (id, subscription_id, delivery_ids, members, bytes, attempts)
		SELECT b, $1, CASE b WHEN $2 THEN (SELECT array_agg(id) FROM postrider_internal.deliveries) ELSE '{}' END, 0, 1, 1
		  FROM generate_series(1, $2::bigint) b`, sub.ID, batches)
	tn.Exec(t, `INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
		SELECT $1, id, now(), 1, 'Pulled' FROM postrider_internal.deliveries`, batches)
	tn.Exec(t, `INSERT INTO postrider_internal.delivery_attempts (day, batch_id, subscription_id, job_id, number,
		    started_at, duration_us, outcome, error, verdict, rule, node)
		SELECT (now() AT TIME ZONE 'UTC')::date, b, $1, b, 1, now(), 1, 'Busy', 'response 503 of batch ' || b, 'retry', '',
		       'test'
		  FROM generate_series(1, $2::bigint) b`, sub.ID, batches)
	tn.Exec(t, "VACUUM ANALYZE")
	for _, table := range []string{"delivery_attempts", "batches"} {
		tx := tn.Begin(t)
		read := rowsRead(t, tx, table, receiveTen, sub.ID)
		require.Positive(t, read, table)
		require.LessOrEqual(t, read, 100, table)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Empty(t, receive(t, tn, sub, 10))
	require.Equal(t, 10, tn.Rows(t, "dead_letters",
		"reason = 'MaxDeliveryAttemptsExceeded' AND last_error = 'response 503 of batch 20000'"))
}

// The lock table has 6,400 places by default, and a node keeps events for as many days as it is configured to.
func TestReceivesLockOnlyTheDaysOfTheirEvents(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 10)
	tx := tn.Begin(t)
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), receiveTen, sub.ID)))
	rows, err := tx.Query(t.Context(), `SELECT i.inhrelid::regclass::text FROM pg_inherits i JOIN pg_locks l
		    ON l.relation = i.inhrelid AND l.pid = pg_backend_pid()
		WHERE i.inhparent = 'postrider_internal.events'::regclass`)
	require.NoError(t, err)
	locked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		tn.Text(t, "SELECT to_char(min(day), '\"postrider_internal.events_\"YYYYMMDD') FROM postrider_internal.events"),
	}, locked)
}
