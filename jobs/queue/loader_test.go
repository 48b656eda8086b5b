package queue_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/publish"
	"postrider/jobs/queue"
)

// Only yesterday's and today's partitions are looked at first; what waited longer is found all the same, body and all,
// beside what is new and beside what is gone.
func TestLoadFindsEventsOfAnyDay(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 3)
	for _, statement := range []string{
		"CREATE TABLE postrider_internal.events_old (LIKE postrider_internal.events INCLUDING ALL)",
		"INSERT INTO postrider_internal.events_old SELECT * FROM postrider_internal.events WHERE event_id = 'e-0'",
		"UPDATE postrider_internal.events_old SET day = day - 20",
		"DELETE FROM postrider_internal.events WHERE event_id IN ('e-0', 'e-1')",
		"DO $$ BEGIN EXECUTE format('ALTER TABLE postrider_internal.events ATTACH PARTITION postrider_internal.events_old " +
			"FOR VALUES FROM (%L) TO (%L)', now()::date - 25, now()::date - 15); END $$",
	} {
		tn.Exec(t, statement)
	}
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET event_day = event_day - 20 WHERE id = $1", d[0])

	for range 2 { // the first look knows no day yet
		for i, row := range []struct {
			id      string
			missing bool
		}{{"e-0", false}, {"", true}, {"e-2", false}} {
			work, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i]}, j[i])
			require.NoError(t, err)
			require.Equal(t, row.missing, work.Members[0].EventMissing)
			require.Equal(t, row.id, work.Members[0].Event.ID)
			require.Equal(t, row.missing, len(work.Members[0].Event.Body) == 0)
			work.Release()
		}
	}
}

// A plan that was made while a table was empty is kept, so it must be right for a full one: tables are read by keys.
func TestKeptPlansReadTablesByKeys(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Exec(t, "VACUUM ANALYZE") // PostgreSQL believes from here on that all tables are empty
	for name, statement := range keptStatements() {
		plan := strings.Join(keptPlan(t, tn, statement), "\n")
		require.NotRegexp(t, `Function Scan on (new|attempt)_job`, plan, "%s calls it for each row", name)
		for table := range strings.SplitSeq(plan, "->") {
			if found := regexp.MustCompile(`^\s+(Seq|Bitmap|Index|Index Only) Scan.* on ` +
				`(deliveries|batches|left_members|river_job|events|delivery_history|event_subscriptions|` +
				`event_subscription_states|topics|probations)`).FindString(table); found != "" {
				require.Contains(t, table, "Index Cond", "%s: %s in\n%s", name, found, plan)
			}
		}
	}
}

// keptPlan is the plan that a statement keeps, whatever its parameters.
func keptPlan(t *testing.T, tn *testnode.Node, kept postgres.KeptStatement) []string {
	t.Helper()
	tx := tn.Begin(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), kept.Settings)))
	prepared, err := tx.Prepare(t.Context(), "kept", kept.SQL)
	require.NoError(t, err)
	nulls := strings.TrimSuffix(strings.Repeat("NULL,", len(prepared.ParamOIDs)), ",")
	rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE kept("+nulls+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NoError(t, tx.Conn().Deallocate(t.Context(), "kept"))
	return plan
}

func keptStatements() map[string]postgres.KeptStatement {
	all := publish.PublishStatements()
	maps.Copy(all, delivery.DeliveryStatements())
	maps.Copy(all, queue.QueueStatements())
	return all
}
