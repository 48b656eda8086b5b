package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/docs"
)

func TestSQLOnlyReads(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const insert, rejected = "INSERT INTO postrider_internal.nodes (id, host, version) VALUES ('x', 'x', 'x')",
		"permission denied|read-only"
	for statement, says := range map[string]string{
		insert: rejected, "WITH x AS (" + insert + " RETURNING id) SELECT * FROM x": rejected,
		"CREATE TABLE postrider.mine (n integer)":           rejected,
		"CREATE TEMP TABLE mine (n integer)":                "read-only",
		"SELECT postrider_internal.next_catalog_version()":  rejected,
		"COMMIT; " + insert:                                 "multiple commands",
		"SELECT key1_sealed FROM postrider_internal.topics": "permission denied",
		"SELEC 1": "syntax error",
		"SELECT 1 FROM postrider_internal.topics": "permission denied.*; only the views of schema postrider may be read",
		"SELECT 1 FROM postrider.nothing": "does not exist.*; the views are in schema postrider, and " +
			"`postrider migrate status`",
		"SELECT topc FROM postrider.topics": `does not exist.*; Perhaps you meant`,
	} {
		r := db.postrider("sql", statement)
		require.Equal(t, 1, r.code, statement)
		require.Regexp(t, "^postrider: run the statement: .*("+says+")", r.stderr)
		require.Empty(t, r.stdout)
	}
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes"))
	db.postrider("sql", "SELECT lo_create(0)") // PostgreSQL 15 runs it, newer ones reject it
	require.Zero(t, one[int](db, "SELECT count(*) FROM pg_largeobject_metadata"))
}

func TestSQLEndsAStatementThatTakesLong(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	r := db.postrider("sql", "--timeout", "1us", "SELECT pg_sleep(60)")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "it was canceled after 1µs, raise --timeout")
	r = db.postrider("sql", "--timeout", "50ms", "SELECT pg_sleep(60)")
	require.Equal(t, 1, r.code)
	require.Regexp(t,
		`canceling statement due to statement timeout.*; it was canceled after 50ms, raise --timeout`, r.stderr)
	require.Equal(t, "30s", words(db.postrider("sql", "SHOW statement_timeout").stdout)[1])
	require.Equal(t, "0", words(db.postrider("sql", "--timeout", "0", "SHOW statement_timeout").stdout)[1])
}

func TestSQLPrints(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	run := func(args ...string) string {
		t.Helper()
		r := db.postrider(append([]string{"sql"}, args...)...)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	require.Equal(t, "name     built_in\nga-2021  true\n(1 row)\n",
		run("SELECT name, built_in FROM postrider.retry_policies WHERE name = 'ga-2021'"))
	require.Equal(t, "n\n0\n(1 row)\n", run("SELECT count(*) AS n FROM dead_letters"))
	require.Equal(t, "total  span      nothing\n1.5    00:01:30  \n(1 row)\n",
		run("SELECT sum(1.5) AS total, interval '90 seconds' AS span, NULL::numeric AS nothing"))
	require.JSONEq(t, `{"n":1,"nothing":null,"id":"00000000-0000-0000-0000-00000000000a"}`,
		run("-o", "json", "SELECT 1 AS n, NULL AS nothing, '00000000-0000-0000-0000-00000000000a'::uuid AS id"))

	const values = `SELECT 'a "b", c' AS x, E'two\nlines' AS y, NULL AS z, '{"n": 12345678901234567890.10}'::jsonb AS j,
		       repeat('l', 100) AS l`
	require.Equal(t,
		"x,y,z,j,l\n\"a \"\"b\"\", c\",\"two\nlines\",,\"{\"\"n\"\":12345678901234567890.10}\","+strings.Repeat("l", 100)+
			"\n", run("-o", "csv", values))
	require.Equal(t, "'@n,m,t,f,g,i\n-1,-1.5,'-1,'=1+1,' +,'-1 day 00:00:00\n",
		run("-o", "csv", `SELECT -1 AS "@n", -1.5 AS m, '-1' AS t, '=1+1' AS f, E'\t+' AS g, interval '-1 day' AS i`))
	require.Contains(t, run("-o", "json", values), `{"n":12345678901234567890.10}`, "every digit")
}

// What is wrong with the command line is said without a database.
func TestSQLRejects(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"":                                  "name either <statement> or --question; --questions lists",
		"--question pending SELECT":         "name either <statement> or --question",
		"--questions SELECT":                "--questions lists the questions and runs nothing",
		"--question nothing":                `no question "nothing"; --questions lists them`,
		"--question 21":                     `no question "21"`,
		"--question pending --topic orders": "is about one subscription: add --subscription",
		"--question oldest --topic orders": `question "oldest" (How long has the oldest event waited?) is not about one ` +
			`topic: omit --topic`,
		"--topic orders SELECT":             "--topic requires --question",
		"--timeout=-1s SELECT":              "--timeout -1s: must not be negative",
		"-o xml SELECT":                     `--output must be one of "table","json","yaml","csv"`,
		"--question oldest --database-url=": "no database: set POSTRIDER_DATABASE_URL",
	} {
		r := postrider(t, strings.NewReader(""), append([]string{"sql"}, strings.Fields(args)...)...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, says, args)
	}
}

// Each question can be listed without a database, and run by its name with its subject. Package query runs them all.
func TestSQLQuestions(t *testing.T) {
	t.Parallel()
	list := postrider(t, strings.NewReader(""), "sql", "--questions")
	require.Zero(t, list.code, list.stderr)
	for _, q := range docs.Questions() {
		require.Regexp(t, `(?m)^\d+ +`+q.Name+` .*`+strings.TrimSuffix(q.Title, "?"), list.stdout)
	}
	asJSON := postrider(t, strings.NewReader(""), "sql", "--questions", "-o", "json")
	require.Equal(t, len(docs.Questions()), strings.Count(asJSON.stdout, `"sql":"`))
	r := newDatabase(t).postrider("sql", "--question", "pending", "--topic", "a", "--subscription", "it's", "-o", "csv")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, ",")
}

// What publishers wrote must not move the cursor or colour the terminal, whether it is printed as a cell or inside an
// error.
func TestSQLPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const text = `E'\x1b[2Jred\x07\u009b31m\r\n'`
	for _, args := range [][]string{
		{"SELECT " + text + " AS x, ARRAY[" + text + "] AS list, jsonb_build_object('k', " + text + ") AS object"},
		{"-o", "json", "SELECT " + text + " AS x"},
		{"SELECT (" + text + " || x)::integer FROM (VALUES ('a')) AS t(x)"},
	} {
		r := db.postrider(append([]string{"sql"}, args...)...)
		for _, printed := range []string{r.stdout, r.stderr} {
			require.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f\x{80}-\x{9f}]`, printed)
		}
		require.Contains(t, r.stdout+r.stderr, "red")
	}
}
