package testnode

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

// planNode is what EXPLAIN (ANALYZE, FORMAT JSON) reports of one node.
type planNode struct {
	NodeType  string     `json:"Node Type"`
	Rows      float64    `json:"Actual Rows"`
	Loops     float64    `json:"Actual Loops"`
	Filtered  float64    `json:"Rows Removed by Filter"`
	Joined    float64    `json:"Rows Removed by Join Filter"`
	Recheck   float64    `json:"Rows Removed by Index Recheck"`
	Index     string     `json:"Index Name"`
	IndexCond string     `json:"Index Cond"`
	Filter    string     `json:"Filter"`
	Plans     []planNode `json:"Plans"`
}

// RequireLinear runs a statement, and requires that no node of its plan reads more rows than most, and that none
// searches a list for each row.
func RequireLinear(t testing.TB, tx pgx.Tx, most int, statement string, args ...any) {
	t.Helper()
	var raw []byte
	require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+statement, args...).Scan(&raw))
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal(raw, &plans))
	plans[0].Plan.requireLinear(t, float64(most))
}

func (n planNode) requireLinear(t testing.TB, most float64) {
	t.Helper()
	node := fmt.Sprintf("%+v", n)
	require.LessOrEqual(t, (n.Rows+n.Filtered+n.Joined+n.Recheck)*n.Loops, most, node)
	if strings.Contains(n.IndexCond+n.Filter, "= ANY (") {
		require.LessOrEqual(t, n.Loops, 1.0, node)
	}
	for _, child := range n.Plans {
		child.requireLinear(t, most)
	}
}

// RequireKeysInPlans requires that the kept plans of statements read tables by keys: a plan that was made while a table
// was empty must be right for a full one.
func RequireKeysInPlans(t *testing.T, statements map[string]postgres.KeptStatement) {
	t.Helper()
	tn := Unchecked(t)
	require.Empty(t, tn.Text(t, `
		SELECT coalesce(string_agg(i.indexrelid::regclass::text, ' '), '')
		  FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'id'
		 WHERE i.indrelid IN ('postrider_internal.deliveries'::regclass, 'postrider_internal.batches'::regclass,
		       'postrider_internal.river_job'::regclass)
		   AND i.indpred IS NULL AND a.attnum = ANY (i.indkey::int2[]) AND a.attnum <> i.indkey[0]`),
		"indexes that a search by ids may read once for each id, see deliveries_subscription_idx")
	tn.Exec(t, "VACUUM ANALYZE") // PostgreSQL believes from here on that all tables are empty
	for name, statement := range statements {
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
func keptPlan(t *testing.T, tn *Node, kept postgres.KeptStatement) []string {
	t.Helper()
	tx := tn.Begin(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, ErrorOf(tx.Exec(t.Context(), kept.Settings)))
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
