package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSQLOnlyReads(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	t.Run("statement", func(t *testing.T) { // a group: what follows it runs when all of them are done
		for _, row := range []struct{ name, statement, says string }{
			{"insert", "INSERT INTO postrider_internal.nodes (id, host, version) VALUES ('x', 'x', 'x')", "permission denied|read-only"},
			{"insert behind a query", "WITH x AS (INSERT INTO postrider_internal.nodes (id, host, version) VALUES ('x', 'x', 'x') RETURNING id) SELECT * FROM x", "permission denied|read-only"},
			{"create", "CREATE TABLE postrider.mine (n integer)", "permission denied|read-only"},
			{"create of what the role may create", "CREATE TEMP TABLE mine (n integer)", "read-only"},
			{"function that writes", "SELECT postrider_internal.next_catalogue_version()", "permission denied|read-only"},
			{"a second statement", "COMMIT; INSERT INTO postrider_internal.nodes (id, host, version) VALUES ('x', 'x', 'x')", "multiple commands"},
			{"secrets", "SELECT key1_sealed FROM postrider_internal.topics", "permission denied"},
			{"nonsense", "SELEC 1", "syntax error"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				r := postrider(t, db.env(), "sql", row.statement)
				require.Equal(t, 1, r.code)
				require.Regexp(t, "^postrider: run the statement: .*("+row.says+")", r.stderr)
			})
		}
	})
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes"))
}

func TestSQLEndsAStatementThatTakesLong(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	r := postrider(t, db.env(), "sql", "--timeout", "1us", "SELECT pg_sleep(60)")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "statement timeout")
	require.Equal(t, "1min", words(postrider(t, db.env(), "sql", "SHOW statement_timeout").stdout)[1])
	require.Equal(t, "0", words(postrider(t, db.env(), "sql", "--timeout", "0", "SHOW statement_timeout").stdout)[1])
	require.Equal(t, 2, postrider(t, db.env(), "sql", "--timeout=-1s", "SELECT 1").code)
}

func TestSQLPrints(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	r := postrider(t, db.env(), "sql", "SELECT name, built_in FROM postrider.retry_policies WHERE name = 'ga-2021'")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "name     built_in\nga-2021  true\n(1 rows)\n", r.stdout)

	r = postrider(t, db.env(), "sql", "SELECT sum(1.5) AS total, interval '90 seconds' AS span, NULL::numeric AS nothing")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "total  span      nothing\n1.5    00:01:30  \n(1 rows)\n", r.stdout)

	r = postrider(t, db.env(), "sql", "-o", "json", "SELECT 1 AS n, NULL AS nothing, '00000000-0000-0000-0000-00000000000a'::uuid AS id")
	require.Zero(t, r.code, r.stderr)
	require.JSONEq(t, `{"n":1,"nothing":null,"id":"00000000-0000-0000-0000-00000000000a"}`, r.stdout)
}

// What publishers wrote must not move the cursor or colour the terminal, whether it is printed as a cell or inside an error.
func TestSQLPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	const text = `E'\x1b[2Jred\x07\u009b31m\r\n'`
	for _, args := range [][]string{
		{"SELECT " + text + " AS x, ARRAY[" + text + "] AS list, jsonb_build_object('k', " + text + ") AS object"},
		{"-o", "json", "SELECT " + text + " AS x"},
		{"SELECT (" + text + " || x)::integer FROM (VALUES ('a')) AS t(x)"},
	} {
		r := postrider(t, db.env(), append([]string{"sql"}, args...)...)
		for _, printed := range []string{r.stdout, r.stderr} {
			require.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f\x{80}-\x{9f}]`, printed)
		}
		require.Contains(t, r.stdout+r.stderr, "red")
	}
}
