package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testnode"
)

// The command line saves, lists, runs and deletes queries.
func TestQueryVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.createQueryLogins()
	run := func(args ...string) string { return h.run(0, append([]string{"query"}, args...)...).stdout }
	require.Equal(t, "Query sum was saved.\n", run("save", "sum", "--description", "Adds", "--sql",
		"select $1::int + $2::int as n, '=1' as t"))
	require.Equal(t, "n,t\n3,'=1\n", run("run", "sum", "--arg", "1=1", "--arg", "2=2", "-o", "csv"))
	require.JSONEq(t, `[{"n": 3, "t": "=1"}]`, run("run", "sum", "--arg", "1=1", "--arg", "2=2", "-o", "json"))
	require.Equal(t, "n  t\n3  =1\n(1 row)\n", run("run", "sum", "--arg", "1=1", "--arg", "2=2"))
	require.Contains(t, run("run", "sum", "--arg", "1=1", "--arg", "2=2", "--plan"), "cost=")
	require.Equal(t, "n\n1\n", run("run", "--sql", "select 1 as n", "-o", "csv"))
	require.Equal(t, "n\n5\n", run("run", "--sql", "select $1::int as n", "--arg", "1=5", "-o", "csv"))
	list := run("list")
	require.Contains(t, list, "sum")
	require.Contains(t, list, "dead-letters", "the documented questions are templates")
	require.Contains(t, run("show", "sum"), "select $1::int + $2::int")
	require.Contains(t, run("run", "pending", "--arg", "topic=orders", "--arg", "subscription=billing"), "(0 rows)")
	more := h.run(0, "query", "run", "--sql", "select generate_series(1, 5)", "--limit", "2", "-o", "csv")
	require.Contains(t, more.stderr, "only the first 2 are shown")
	for _, wrong := range [][]string{{"run"}, {"run", "sum", "--sql", "x"}, {"run", "--sql", "x", "--arg", "a=1"}} {
		h.run(2, append([]string{"query"}, wrong...)...)
	}
	failed := h.run(1, "query", "run", "--sql", "delete from topics")
	require.Contains(t, failed.stderr, "syntax error", failed.stderr)
	require.Equal(t, "Query sum was deleted.\n", run("delete", "sum"))
}

// createQueryLogins creates the login roles that run queries, as migrate up does.
func (h *host) createQueryLogins() {
	h.t.Helper()
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(h.t, err)
	db := postgres.NewDB(h.db)
	require.NoError(h.t, sqlquery.EnsureLogins(h.t.Context(), db, db, sealer))
}
