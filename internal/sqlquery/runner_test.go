package sqlquery_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testdb"
)

func texts(rows [][]*string) (all [][]string) {
	for _, row := range rows {
		var cells []string
		for _, value := range row {
			if value == nil {
				cells = append(cells, "NULL")
				continue
			}
			cells = append(cells, *value)
		}
		all = append(all, cells)
	}
	return all
}

func TestRun(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	got, err := qs.runner.Run(t.Context(), sqlquery.Request{
		SQL: "SELECT n, $1::text AS t, $2 || 'x', NULL::numeric(10,2) AS m, $3::int + n " +
			"FROM generate_series(1, 3) n; -- all",
		Args: []string{"a'b", "c", "10"},
	})
	require.NoError(t, err)
	require.Equal(t, []sqlquery.Column{
		{"n", "integer"}, {"t", "text"}, {"?column?", "text"}, {"m", "numeric(10,2)"}, {"?column?", "integer"},
	}, got.Columns)
	require.Equal(t, [][]string{
		{"1", "a'b", "cx", "NULL", "11"}, {"2", "a'b", "cx", "NULL", "12"}, {"3", "a'b", "cx", "NULL", "13"},
	}, texts(got.Rows))
	require.False(t, got.More)
	require.Positive(t, got.Took)

	got, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT topic FROM topics"})
	require.NoError(t, err)
	require.Equal(t, []sqlquery.Column{{"topic", "text"}}, got.Columns)
	require.Empty(t, got.Rows)

	got, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT current_setting('transaction_read_only'), " +
		"current_setting('search_path'), current_setting('statement_timeout'), current_setting('temp_file_limit')"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"on", "postrider, pg_catalog, pg_temp", "35s", "1GB"}}, texts(got.Rows))

	plan, err := qs.runner.Plan(t.Context(), sqlquery.Request{
		SQL: "SELECT * FROM topics WHERE topic = $1", Args: []string{"a"},
	})
	require.NoError(t, err)
	require.Contains(t, plan, "cost=")
	_, err = qs.runner.Plan(t.Context(), sqlquery.Request{SQL: "SELECT nothing"})
	var rejected *sqlquery.Error
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, 8, rejected.Position)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	run := func(sql string, rows int) *sqlquery.Result {
		got, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: sql, MaxRows: rows})
		require.NoError(t, err)
		return got
	}
	require.Len(t, run("SELECT generate_series(1, 1000)", 0).Rows, 1000)
	require.False(t, run("SELECT generate_series(1, 1000)", 0).More)
	for _, rows := range []int{0, 2000} {
		got := run("SELECT generate_series(1, 1001)", rows)
		require.Len(t, got.Rows, 1000)
		require.True(t, got.More)
	}
	got := run("SELECT generate_series(1, 10)", 2)
	require.Len(t, got.Rows, 2)
	require.True(t, got.More)

	got = run("SELECT repeat('x', 1 << 20) FROM generate_series(1, 20)", 0)
	require.Len(t, got.Rows, 8)
	require.True(t, got.More)
	n := 0
	const many = "SELECT n FROM generate_series(1, 5000) n"
	columns, err := qs.stream(t.Context(), many, func([]*string) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 5000, n)
	require.Equal(t, []sqlquery.Column{{"n", "integer"}}, columns)
	_, err = qs.stream(t.Context(), many, func([]*string) error { return context.Canceled })
	require.ErrorIs(t, err, context.Canceled)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	for _, test := range []struct {
		sql, message string
		position     int
		args         []string
	}{
		{sql: "SELECT é, nothing FROM topics", message: `column "é" does not exist`, position: 8},
		{sql: "SELECT 'é' || nothing", message: `column "nothing" does not exist`, position: 15},
		{sql: "DELETE FROM topics", message: `syntax error at or near "DELETE"`, position: 1},
		{sql: "SELECT", message: ""},
		{sql: "SELECT 1; SELECT 2", message: "a query has one statement"},
		{sql: "SELECT 1 INTO x", message: "SELECT ... INTO is not allowed here", position: 15},
		{sql: " ", message: "the query is empty"},
		{sql: "-- nothing", message: "syntax error at end of input", position: 11},
		{sql: "SELECT $1::int", message: "the query has 1 parameters; 0 values were sent"},
		{sql: "SELECT $1::int", args: []string{"x"}, message: `invalid input syntax for type integer: "x"`},
		{sql: "SELECT 1/0", message: "division by zero"},
		{sql: strings.Repeat(" ", 64<<10) + "SELECT 1", message: "the query is longer than 64 KiB"},
	} {
		_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: test.sql, Args: test.args})
		if test.message == "" {
			require.NoError(t, err, test.sql)
			continue
		}
		var rejected *sqlquery.Error
		require.ErrorAs(t, err, &rejected, test.sql)
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.Contains(t, rejected.Message, test.message)
		require.NotContains(t, rejected.Message+rejected.Hint, "DECLARE")
		require.Equal(t, test.position, rejected.Position, test.sql)
	}
}

// The check of a query is linear in its size: || makes a tree whose every node contains all the earlier ones.
func TestChainsOfOperators(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	chain := func(terms int) string { return strings.Repeat("'a'||", terms-1) + "'a'" }
	got, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT length(" + chain(3000) + ")"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"3000"}}, texts(got.Rows))
	_, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT strpos(topic, " + chain(64) + ") FROM topics"})
	require.NoError(t, err)
	_, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT strpos(topic, " + chain(65) + ") FROM topics"})
	require.ErrorContains(t, err, "calls strpos(text,text) with a second argument")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := qs.stream(ctx, "SELECT n, CASE WHEN n > 9000 THEN "+
		"(SELECT count(*) FROM generate_series(n, 1e12)) END FROM generate_series(1, 10000) n",
		func([]*string) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	qs.idle(t)
}

// The result of a query has one format, whatever the settings of the database are. PostgreSQL's log gets no warning.
func TestRunWithUnusualSettings(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	testdb.SetUnusual(t, qs.url, testdb.UnusualSettings)
	got, err := qs.runner.Run(t.Context(), sqlquery.Request{
		SQL: `SELECT timestamptz '2026-03-04 05:06:07+00', date '2026-03-04', interval '1 day 02:03:04', bytea '\xff',
			0.1::float8 + 0.2::float8, 'ä€', '\', '03/04/2026'::date`,
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{
		"2026-03-04 05:06:07+00", "2026-03-04", "1 day 02:03:04", `\xff`, "0.30000000000000004", "ä€", `\`, "2026-03-04",
	}}, texts(got.Rows))
	problems, err := qs.runner.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	log, err := os.ReadFile(filepath.Join(testdb.Server(t).Dir(), "postgres.log"))
	require.NoError(t, err)
	require.NotContains(t, string(log), "there is no transaction in progress")
}
