package sqlquery_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
)

// attempts are SQL texts and the regular expression of their error.
type attempts struct {
	want  string
	texts []string
}

// attemptsOf reads a file of SQL statements, one a line, each group below a line "error: regular expression".
func attemptsOf(t *testing.T, file string) (groups []attempts) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if want, found := strings.CutPrefix(line, "error: "); found {
			groups = append(groups, attempts{want: want})
		} else if !strings.HasPrefix(line, "#") {
			last := &groups[len(groups)-1]
			last.texts = append(last.texts, line)
		}
	}
	require.Greater(t, len(groups), 5)
	return groups
}

// state describes what no query may change.
const state = `SELECT concat_ws(' ', (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc),
	(SELECT string_agg(n::text, ',') FROM public.canary), (SELECT last_value FROM public.canary_seq),
	(SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'x'),
	(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42), (SELECT count(*) FROM pg_extension),
	(SELECT md5(string_agg(r::text || (SELECT array_agg(m.roleid::regrole) FROM pg_auth_members m
	    WHERE m.member = r.oid)::text, '' ORDER BY rolname)) FROM pg_roles r
	  WHERE rolname IN (SELECT role FROM postrider_internal.query_logins)),
	(SELECT md5(string_agg(q::text, '')) FROM postrider_internal.query_logins q),
	(SELECT count(*) FROM postrider_internal.audit WHERE action <> 'query_run'))`

func TestBreakouts(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	qs.exec(t, "CREATE TABLE public.canary (n int); INSERT INTO public.canary VALUES (1); "+
		"CREATE SEQUENCE public.canary_seq; CREATE EXTENSION dblink SCHEMA public; SELECT lo_create(1); "+
		"CREATE PROCEDURE postrider.p() LANGUAGE sql AS 'SELECT 1'")
	before, session := qs.text(t, state), qs.open(t)
	groups := append(attemptsOf(t, "testdata/breakouts.txt"),
		attempts{"a query has one statement", []string{"SELECT 1 --\n; DROP TABLE public.canary"}},
		attempts{"without the character 0", []string{"SELECT 1\x00; DROP TABLE public.canary", "SELECT '\xff'", "\x00"}})
	for _, group := range groups {
		for i, attempt := range group.texts {
			q := sqlquery.Request{SQL: attempt}
			err := session.Run(t.Context(), q)
			require.Error(t, err, attempt)
			require.Regexp(t, group.want, err.Error(), attempt)
			var rejected *sqlquery.Error
			require.ErrorAs(t, err, &rejected, attempt)
			if i == 0 { // in a session of its own
				_, err = qs.runner.Run(t.Context(), q)
				require.ErrorContains(t, err, rejected.Error(), attempt)
			}
			require.Equal(t, before, qs.text(t, state), attempt)
		}
	}
	result, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT '" + strings.Repeat("é", 3) + "'"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"ééé"}}, texts(result.Rows))
}

// A query is checked by what PostgreSQL resolves in it, whatever its names look like. So is a plan.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	qs.exec(t, `CREATE EXTENSION dblink SCHEMA public; CREATE EXTENSION pg_stat_statements SCHEMA public;
		CREATE FUNCTION public.own(int, int DEFAULT 1) RETURNS int LANGUAGE sql IMMUTABLE RETURN 1;
		CREATE FUNCTION public.fits(text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
		CREATE OPERATOR public.=== (FUNCTION = public.own, LEFTARG = int, RIGHTARG = int);
		CREATE AGGREGATE public.own_sum(int) (SFUNC = int4pl, STYPE = int);
		CREATE DOMAIN public.shoe AS text CHECK (public.fits(value));
		CREATE TABLE public.granted (n int, x xml); CREATE VIEW public.hidden AS SELECT pg_advisory_lock(42)::text;
		CREATE TABLE public.secured (n int); ALTER TABLE public.secured ENABLE ROW LEVEL SECURITY;
		CREATE SEQUENCE public.canary_seq; GRANT SELECT ON ALL TABLES IN SCHEMA public TO postrider_reader`)
	session := qs.open(t)
	joins := "SELECT 1 FROM topics" + strings.Repeat(" CROSS JOIN topics", 101)
	groups := append(attemptsOf(t, "testdata/not-allowed.txt"), attempts{"101 joins", []string{joins}})
	for _, group := range groups {
		for i, attempt := range group.texts {
			q := sqlquery.Request{SQL: attempt}
			if strings.Contains(attempt, "$1") {
				q.Args = []string{strings.Repeat("1", 65)}
			}
			err := session.Run(t.Context(), q)
			var rejected *sqlquery.Error
			require.ErrorAs(t, err, &rejected, attempt)
			require.Regexp(t, group.want, rejected.Message, attempt)
			if i == 0 {
				require.EqualError(t, session.Plan(t.Context(), q), rejected.Message, attempt)
			}
		}
	}
}

// What is not rejected by the check.
func TestAllowed(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	qs.exec(t, `CREATE TYPE public.color AS ENUM ('red'); CREATE TABLE public.granted (n int, x xml, c public.color);
		INSERT INTO public.granted VALUES (1, '<a/>', 'red'); GRANT SELECT ON public.granted TO postrider_reader`)
	session := qs.open(t)
	for _, q := range docs.Questions() {
		require.NoError(t, session.Run(t.Context(), sqlquery.Request{SQL: q.SQL}), q.Name)
		text, names := q.Template()
		require.NoError(t, session.Plan(t.Context(), sqlquery.Request{SQL: text, Args: names}), q.Name)
	}
	for _, text := range []string{
		"SELECT random(), clock_timestamp(), timeofday(), gen_random_uuid(), pg_total_relation_size('pg_class')",
		"SELECT pg_database_size(current_database()), pg_size_pretty(1::bigint), now(), current_user",
		"SELECT 1 AS a, 2 AS a, $1::text AS xml, $1 || 'x'", "SELECT * FROM topics a JOIN topics b USING (topic); -- all",
		"SELECT a.*, b.* FROM topics a, topics b /* } { */", `SELECT 1 AS "{XMLEXPR :funcid 2880", 2 AS "\}(({QUERY"`,
		"SELECT replace(topic, $1, '}'), split_part(event_id || '/', '/', 2), trim(topic) FROM events",
		"SELECT topic ILIKE '%' || $1 || '%', topic LIKE ANY ('{a%,b%}'), to_char(now(), 'YYYY') FROM topics",
		"SELECT data @> '{\"a\": 1}', '{a}' && ARRAY[topic], ARRAY[topic, $1] @> ARRAY['a', 'b'] FROM dead_letters",
		"SELECT data ?| '{a,b}', data ?& ARRAY['a', 'b'], data ? topic FROM dead_letters",
		"SELECT ltrim(topic, '0'), trim(both $1 from topic), translate(topic, '.-', '__') FROM topics",
		"SELECT max(c), c::text FROM public.granted GROUP BY c", "SELECT 1 END; --",
		"SELECT * FROM pg_stat_activity, information_schema.tables LIMIT 1", "SELECT count(*) FROM pg_locks",
		"SELECT max(x::text COLLATE \"C\") FILTER (WHERE true) FROM (VALUES (1)) v(x) GROUP BY GROUPING SETS ((x), ())",
		"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT sum(n) OVER () FROM r",
		"SELECT e.value FROM jsonb_each_text('{\"a\": 1}') e WHERE e.key = ANY ($1::text[])", "VALUES (1), (2)",
		"SELECT current_setting('TimeZone')", "TABLE topics",
		"SELECT data ->> 'a', body::jsonb FROM dead_letters LIMIT 1", "SELECT ARRAY(SELECT 1), ROW(1, 2) < ROW(2, 1)",
		"SELECT * FROM json_to_recordset('[{\"a\": 1}]') AS x(a int, b text)", "SELECT '2026-01-01'::timestamptz::date",
	} {
		q := sqlquery.Request{SQL: text}
		if strings.Contains(text, "$1") {
			q.Args = []string{"{a}"}
		}
		require.NoError(t, session.Run(t.Context(), q), text)
	}
}

// A query that computes ends at the deadline.
func TestBreakoutsOfLimits(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{Timeout: 300 * time.Millisecond})
	for _, attempt := range []string{
		"SELECT count(*) FROM generate_series(1, 1e12)",
		"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
		"SELECT repeat('(a', 2000) || repeat('*)*', 2000) ~ 'b' FROM generate_series(1, 1e12)",
	} {
		_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.ErrorIs(t, err, sqlquery.ErrDeadline, attempt)
		qs.idle(t)
	}
	qs = setup(t, sqlquery.Options{})
	for _, attempt := range []string{
		"SELECT repeat('x', 9 << 20)", "SELECT array_agg(n) FROM generate_series(1, 1300000) n",
	} {
		_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.ErrorIs(t, err, sqlquery.ErrTooLarge, attempt)
	}
}

// idle waits until no query runs in PostgreSQL.
func (qs *queries) idle(t *testing.T) {
	t.Helper()
	const running = `SELECT count(*)::text FROM pg_stat_activity
		WHERE usename IN (SELECT role FROM postrider_internal.query_logins)`
	require.Eventually(t, func() bool { return qs.text(t, running) == "0" }, time.Minute, 10*time.Millisecond)
}

// Of two concurrent users, neither sees the other's query. A user's third query and a node's fifth are rejected, and on
// another node those that find no login.
func TestConcurrentQueries(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, sqlquery.Logins)
	user := func(ctx context.Context, name string) context.Context {
		return access.WithActor(ctx, access.Actor{Name: "user:" + name})
	}
	const running = `SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%FETCH%' AND state = 'active'
		AND usename IN (SELECT role FROM postrider_internal.query_logins)`
	start := func(name, number string) {
		go func() {
			const large = "SELECT 'a secret', repeat('x', 1 << 18) FROM generate_series(1, 100)"
			_, err := qs.stream(user(ctx, name), large, func([]*string) error {
				<-ctx.Done() // PostgreSQL waits until more is read
				return ctx.Err()
			})
			ended <- err
		}()
		require.Eventually(t, func() bool { return qs.text(t, running) == number }, time.Minute, 10*time.Millisecond)
	}
	start("anna", "1")
	pid := qs.text(t, `SELECT pid::text FROM pg_stat_activity WHERE state = 'active'
		AND usename IN (SELECT role FROM postrider_internal.query_logins)`)
	seen, err := qs.runner.Run(t.Context(), sqlquery.Request{
		SQL: "SELECT query, client_addr, state FROM pg_stat_activity WHERE pid = " + pid,
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"<insufficient privilege>", "NULL", "NULL"}}, texts(seen.Rows))

	for i, name := range []string{"anna", "bob", "bob"} {
		start(name, strconv.Itoa(i+2))
	}
	elsewhere, err := sqlquery.NewRunner(postgres.NewDB(qs.pool), qs.sealer, sqlquery.Options{})
	require.NoError(t, err)
	_, err = elsewhere.Run(user(t.Context(), "anna"), sqlquery.Request{SQL: "SELECT 1"})
	require.ErrorIs(t, err, sqlquery.ErrBusy)
	var more sync.WaitGroup
	for name, says := range map[string]string{
		"anna": "at most 2 of your queries at a time", "carla": "4 queries run on this node",
	} {
		more.Go(func() {
			_, err := qs.runner.Run(user(t.Context(), name), sqlquery.Request{SQL: "SELECT 1"})
			busy, ok := errors.AsType[*postgres.BusyError](err)
			if assert.True(t, ok, "%v", err) {
				assert.Contains(t, busy.Error(), says)
				assert.Equal(t, name == "anna", busy.Own)
			}
		})
	}
	more.Wait()
	cancel()
	for range sqlquery.Logins {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	qs.idle(t)
	_, err = qs.runner.Run(user(t.Context(), "anna"), sqlquery.Request{SQL: "SELECT 1"})
	require.NoError(t, err)
}
