package testnode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
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
