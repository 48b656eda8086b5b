package sqlquery_test

import (
	"context"
	"errors"
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

const (
	denied    = `permission denied|must be superuser`
	notSelect = `syntax error at or near`
)

// breakouts are attempts to write, to get more rights, to stay longer or to reach another session. want is a regular
// expression of the error.
var breakouts = []struct {
	want     string
	attempts []string
}{
	{notSelect, []string{
		"SET ROLE postgres", "RESET ROLE", "SET SESSION AUTHORIZATION postgres", "RESET ALL",
		"INSERT INTO public.canary VALUES (2)", "UPDATE public.canary SET n = 2", "DELETE FROM public.canary",
		"TRUNCATE public.canary", "MERGE INTO public.canary USING (VALUES (1)) v ON true WHEN MATCHED THEN DELETE",
		"CREATE TABLE t()", "CREATE TEMP TABLE t()", "CREATE TABLE t AS SELECT 1", "DROP TABLE public.canary",
		"DO $$ BEGIN DELETE FROM public.canary; END $$", "CALL p()", "GRANT ALL ON public.canary TO PUBLIC",
		"ALTER ROLE CURRENT_USER PASSWORD 'x'", "ALTER ROLE CURRENT_USER CONNECTION LIMIT -1", "CREATE EXTENSION dblink",
		"COPY public.canary TO STDOUT", "COPY public.canary FROM STDIN", "COPY public.canary TO '/tmp/canary'",
		"COPY (SELECT 1) TO PROGRAM 'touch /tmp/canary'", "LOCK TABLE postrider.topics", "VACUUM", "CHECKPOINT",
		"EXPLAIN ANALYZE DELETE FROM public.canary", "EXPLAIN SELECT 1", "PREPARE p AS SELECT 1", "EXECUTE p",
		"DEALLOCATE ALL", "DISCARD ALL", "LISTEN c", "NOTIFY c", "UNLISTEN *", "LOAD 'dblink'", "SHOW data_directory",
		"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "SET TRANSACTION READ WRITE", "COMMIT PREPARED 'x'", "RETURN 1",
		"CLOSE postrider_query", "FETCH ALL FROM postrider_query", "DECLARE c CURSOR FOR SELECT 1",
	}},
	{"not allowed here", []string{"SELECT 1 INTO t", "SELECT 1 INTO TEMP t"}},
	{"must not contain data-modifying", []string{
		"WITH gone AS (DELETE FROM public.canary RETURNING 1) SELECT * FROM gone",
		"WITH made AS (INSERT INTO public.canary VALUES (2) RETURNING 1) SELECT * FROM made",
		"WITH changed AS (UPDATE public.canary SET n = 2 RETURNING 1) SELECT * FROM changed",
	}},
	{"permission denied|read-only transaction", []string{
		"SELECT * FROM postrider.topics FOR UPDATE", "SELECT * FROM public.canary FOR SHARE",
	}},
	{denied, []string{
		"SELECT * FROM public.canary", "SELECT * FROM postrider_internal.users", "TABLE postrider_internal.query_logins",
		"SELECT * FROM postrider_internal.river_job", "SELECT * FROM postrider_internal.queries", "TABLE pg_authid",
		"SELECT * FROM pg_shadow", "SELECT * FROM pg_user_mapping", "SELECT * FROM pg_largeobject",
		"SELECT * FROM pg_statistic", "SELECT current_setting('data_directory')", "SELECT * FROM pg_hba_file_rules",
		"SELECT * FROM pg_file_settings", "SELECT * FROM postrider.count_events('orders', now() - interval '1 hour')",
	}},
	// Texts that end our statement.
	{"a query has one statement", []string{
		"SELECT 1; SELECT 2", "SELECT 1; DELETE FROM public.canary", "SELECT 1; COMMIT; DELETE FROM public.canary",
		"SELECT 1; CLOSE postrider_query; DECLARE postrider_query CURSOR FOR SELECT 2", "SELECT 1; END", "SELECT 1; END --",
		"SELECT 1 --\n; DROP TABLE public.canary", "SELECT 1 /* */; DROP TABLE public.canary",
		"VALUES (1); SET ROLE postgres",
	}},
	{"unterminated", []string{
		"SELECT '", `SELECT "`, "SELECT $$", "SELECT 1 /*", "SELECT $q$ $$", "SELECT E'\\'", "SELECT 1; END; /*",
	}},
	{"syntax error", []string{
		"SELECT 1) TO STDOUT", "-- nothing", "SELECT 1 WITH HOLD", ";", "); DROP TABLE public.canary", "$1",
		"SELECT 1 \\; DROP TABLE public.canary", "TABLE",
	}},
	{"without the character 0", []string{"SELECT 1\x00; DROP TABLE public.canary", "SELECT '\xff'", "\x00"}},
}

// notAllowed are attempts with what the error names.
var notAllowed = []struct {
	named    string
	attempts []string
}{
	{`calls xpath\(text,xml\)`, []string{
		"SELECT xpath('/a', '<a/>')", `SELECT U&"\0078path"('/a', '<a/>')`, `SELECT pg_catalog."xpath"('/a', '<a/>')`,
		"SELECT * FROM topics, LATERAL unnest(xpath('/a', '<a/>'))", "WITH a AS (SELECT xpath('/a', '<a/>')) SELECT 1",
		"SELECT 1 FROM topics GROUP BY GROUPING SETS ((xpath('/a', '<a/>')::text), ())",
		"SELECT count(*) FILTER (WHERE xpath('/a', '<a/>') IS NULL) FROM topics", "VALUES (1, xpath('/a', '<a/>'))",
		"SELECT 1 ORDER BY xpath('/a', '<a/>')::text", "SELECT CASE WHEN false THEN xpath('/a', '<a/>') END",
		"SELECT 1 WHERE false AND xpath('/a', '<a/>') IS NULL", "SELECT 1 LIMIT cardinality(xpath('/a', '<a/>'))",
		"SELECT (SELECT (SELECT xpath('/a', '<a/>')))", "SELECT 1 UNION SELECT cardinality(xpath('/a', '<a/>'))",
		"SELECT sum(1) OVER (ORDER BY cardinality(xpath('/a', '<a/>')))", "SELECT xpath('/a', '<a/>') --",
	}},
	{"xml", []string{
		"SELECT '<a/>'::xml", "SELECT '{<a/>}'::xml[]", "SELECT topic::xml FROM topics",
		"SELECT CAST(topic AS xml) FROM topics", "SELECT xml(topic) FROM topics", "SELECT xmlforest(1 AS a)",
		"SELECT '{}'::text::xml[]", "SELECT xml '<a/>' IS DOCUMENT", "SELECT xmlparse(document '<a/>')",
		"SELECT xmlelement(name a, topic) FROM topics", "SELECT xmlagg(NULL)", "SELECT NULL::xml",
		"SELECT xmlserialize(content '<a/>' AS text)", "SELECT xml_is_well_formed(topic) FROM topics",
		"SELECT xmlexists('/a' PASSING '<a/>')", "SELECT * FROM xmltable('/a' PASSING '<a/>' COLUMNS a text)",
		"SELECT * FROM json_to_record('{}') AS x(a xml)", "SELECT * FROM json_to_record('{}') AS x(a xml[])",
		"SELECT query_to_xml('SELECT 1', true, true, '')", "SELECT database_to_xml(true, true, '')",
		"SELECT table_to_xml('topics', true, true, '')", "SELECT cursor_to_xml('postrider_query', 1, true, true, '')",
		"SELECT xml_in('<a/>')",
	}},
	{`calls array_in`, []string{"SELECT array_in(textout(topic), 142, -1) FROM topics"}},
	{"calls pg_advisory_lock", []string{
		"SELECT pg_advisory_lock(n) FROM generate_series(1, 100000) n",
		"SELECT n.pg_advisory_lock FROM generate_series(1::bigint, 100000) n", "SELECT pg_advisory_lock_shared(42)",
		`SELECT * FROM U&"pg\005fadvisory_lock"(42)`, "SELECT pg_advisory_lock($1::bigint)",
	}},
	{"calls (pg_try_advisory|pg_advisory_xact)", []string{
		"SELECT pg_advisory_xact_lock(42)", "SELECT pg_try_advisory_lock(42)",
	}},
	{"calls pg_logical_emit_message", []string{"SELECT pg_logical_emit_message(false, 'canary', repeat('x', 1000))"}},
	{"calls lo", []string{
		"SELECT lo_create(0)", "SELECT lo_creat(-1)", "SELECT lo_from_bytea(0, 'x')", "SELECT lo_import('/etc/passwd')",
		"SELECT lo_export(1, '/tmp/canary')", "SELECT lo_open(1, 131072)", "SELECT lo_get(1)", "SELECT loread(0, 1)",
	}},
	{"calls set_config", []string{
		"SELECT set_config('role', 'postgres', false)", "SELECT set_config('statement_timeout', '0', false)",
		"SELECT set_config('transaction_read_only', 'off', true)", `SELECT "set_config"('search_path', '', false)`,
	}},
	{"calls ts_", []string{
		"SELECT * FROM ts_stat('SELECT 1')", "SELECT ts_rewrite('a'::tsquery, 'SELECT 1')",
		"SELECT ts_rewrite('a', ($1)::text)", "SELECT ts_rewrite('a & b'::tsquery, 'a', 'c')",
		"SELECT ts_rank(to_tsvector(topic), 'a & b') FROM topics",
		"SELECT ts_rank_cd('{1,1,1,1}'::real[], 'a:1'::tsvector, 'a'::tsquery)",
		"SELECT ts_headline(topic, 'a') FROM topics",
	}},
	{"calls (nextval|setval|pg_|dblink|random)", []string{
		"SELECT nextval('public.canary_seq')", "SELECT setval('public.canary_seq', 99)",
		"SELECT pg_read_file('/etc/passwd')", "SELECT pg_read_binary_file('/etc/passwd')", "SELECT pg_ls_dir('/')",
		"SELECT pg_stat_file('/etc/passwd')", "SELECT pg_sleep(60)", "SELECT pg_sleep_for('1 minute')",
		"SELECT pg_notify('canary', 'from a query')", "SELECT pg_export_snapshot()", "SELECT pg_reload_conf()",
		"SELECT pg_terminate_backend(pg_backend_pid())", "SELECT pg_cancel_backend(pg_backend_pid())",
		"SELECT pg_switch_wal()", "SELECT pg_promote()", "SELECT pg_stat_reset()", "SELECT pg_backup_start('x')",
		"SELECT pg_create_physical_replication_slot('x')", "SELECT pg_replication_origin_create('x')",
		"SELECT pg_log_backend_memory_contexts(pg_backend_pid())",
		"SELECT pg_get_object_address('function', ARRAY['pg_catalog', proname], ARRAY['integer']) FROM pg_proc",
	}},
	{"calls (setseed|public.own|public.dblink|own|dblink|normalize|is_normalized|.normalize)", []string{
		"SELECT setseed(0)", "SELECT public.own(1)", "SELECT 1 OPERATOR(public.===) 1", "SELECT public.own_sum(1)",
		"SELECT public.own_sum(1) OVER ()", "SELECT topic IS NORMALIZED FROM topics",
		"SELECT public.dblink_connect('c', 'host=/tmp')", "SELECT normalize(topic) FROM topics",
		"SELECT * FROM public.dblink('dbname=postgres', 'SELECT 1') AS t(n int)",
	}},
	{"calls (purge|redeliver|cancel|pause|publish)", []string{
		"SELECT postrider.purge(gen_random_uuid())", "SELECT redeliver(gen_random_uuid())", "SELECT cancel(1)",
		"SELECT postrider.pause('orders', 'billing')", "SELECT postrider.publish('orders', '{}')",
	}},
	{"uses type (public.)?(shoe|granted|short)", []string{
		"SELECT '1'::public.shoe", "SELECT $1::public.shoe", "SELECT '{1}'::public.shoe[] IS NULL",
		"SELECT NULL::public.granted", "SELECT ROW(1, '')::public.granted",
		"SELECT jsonb_populate_record(t, '{}') FROM public.granted t",
		"SELECT '1'::text::public.shoe",
	}},
	{"uses type (path|polygon)", []string{"SELECT '(0,0)'::path ?# '(0,0)'", "SELECT topic::polygon FROM topics"}},
	{"uses type jsonpath", []string{
		"SELECT jsonb_path_match(jsonb_build_object('a', jsonb_agg(n), 'b', jsonb_agg(-n)), '$.a[*] == $.b[*]') " +
			"FROM generate_series(1, 200000) n",
		"SELECT data @? '$.a' FROM dead_letters", "SELECT data @@ topic::jsonpath FROM dead_letters",
		"SELECT '{$}'::jsonpath[] IS NULL",
	}},
	{"(reads view|calls) public.pg_stat_statements", []string{ // has the texts of other users' queries
		"SELECT query FROM public.pg_stat_statements", "SELECT query FROM public.pg_stat_statements(true)",
	}},
	{"reads view public.hidden", []string{
		"SELECT * FROM public.hidden", "SELECT 1 WHERE EXISTS (TABLE public.hidden)",
		"WITH a AS (SELECT 1 AS x FROM topics t LEFT JOIN (SELECT * FROM public.hidden) h ON true) SELECT * FROM a",
	}},
	{"reads table public.secured, which has row security", []string{"TABLE public.secured"}},
	{"calls (replace|strpos|translate|split_part|string_to_array|ltrim)", []string{
		"SELECT replace(repeat('a', 2000000), 'b' || repeat('a', 1000000), 'c')", "SELECT strpos(topic, topic) FROM topics",
		"SELECT translate(topic, repeat('b', 100000), '') FROM topics", "SELECT split_part(topic, $1, 1) FROM topics",
		"SELECT string_to_array(topic, topic) FROM topics", "SELECT ltrim(topic, topic) FROM topics",
	}},
	{"calls (text(ic)?n?like|to_timestamp|to_char|jsonb_delete)", []string{
		"SELECT topic LIKE '%' || topic || '%' FROM topics", "SELECT topic NOT ILIKE repeat('a', 100000) FROM topics",
		"SELECT 'a' LIKE ANY (SELECT topic FROM topics)", "SELECT topic LIKE ANY (ARRAY[topic]) FROM topics",
		"SELECT to_timestamp(repeat('1', 1000000), repeat('YYYY', 100000))", "SELECT to_char(now(), topic) FROM topics",
		"SELECT jsonb_agg(topic) - array_agg(topic) FROM topics",
	}},
	{"calls (btrim|ltrim|translate).* of at most 8 bytes", []string{
		"SELECT ltrim(repeat('a', 10000000), 'bcdefghia')", "SELECT trim('bcdefgh' || 'ia' FROM topic) FROM topics",
		"SELECT translate(topic, 'abcdefghi', '') FROM topics",
	}},
	{"calls jsonb_exists_(any|all)", []string{
		"SELECT to_jsonb(array_agg(n::text)) ?| array_agg('x' || n) FROM generate_series(1, 100000) n",
		"SELECT to_jsonb(array_agg(n::text)) ?& array_agg(n::text) FROM generate_series(1, 100000) n",
	}},
	{"calls (array|jsonb_)(contain|overlap)", []string{
		"SELECT array_agg(n) @> array_agg(-n) FROM generate_series(1, 100000) n",
		"SELECT jsonb_agg(topic) <@ jsonb_agg(topic) FROM topics",
		"SELECT array_agg(n) && array_agg(-n) FROM generate_series(1, 100000) n",
	}},
	{"uses type int8multirange", []string{"SELECT int8multirange(variadic array_agg(int8range(1, 2)))"}},
	{"101 joins", []string{"SELECT 1 FROM topics" + strings.Repeat(" CROSS JOIN topics", 101)}},
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
	before := qs.text(t, state)
	for _, group := range breakouts {
		for _, attempt := range group.attempts {
			_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
			require.Error(t, err, attempt)
			require.Regexp(t, group.want, err.Error(), attempt)
			var rejected *sqlquery.Error
			require.ErrorAs(t, err, &rejected, attempt)
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
	for _, group := range notAllowed {
		for i, attempt := range group.attempts {
			q := sqlquery.Request{SQL: attempt}
			if strings.Contains(attempt, "$1") {
				q.Args = []string{strings.Repeat("1", 65)}
			}
			_, err := qs.runner.Run(t.Context(), q)
			var rejected *sqlquery.Error
			require.ErrorAs(t, err, &rejected, attempt)
			require.Regexp(t, group.named, rejected.Message, attempt)
			if i == 0 {
				_, err = qs.runner.Plan(t.Context(), q)
				require.EqualError(t, err, rejected.Message, attempt)
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
	for _, q := range docs.Questions() {
		_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: q.SQL})
		require.NoError(t, err, q.Name)
		text, names := q.Template()
		_, err = qs.runner.Plan(t.Context(), sqlquery.Request{SQL: text, Args: names})
		require.NoError(t, err, q.Name)
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
		_, err := qs.runner.Run(t.Context(), q)
		require.NoError(t, err, text)
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
	for attempt, want := range map[string]error{
		"SELECT repeat('x', 100000000)": sqlquery.ErrTooLarge, "SELECT repeat('x', 9 << 20)": sqlquery.ErrTooLarge,
		"SELECT array_agg(n) FROM generate_series(1, 3000000) n":  sqlquery.ErrTooLarge,
		"SELECT * FROM generate_series(1, 100000)":                nil,
		"SELECT repeat('x', 1 << 20) FROM generate_series(1, 90)": nil,
	} {
		got, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.ErrorIs(t, err, want, attempt)
		if want == nil {
			require.True(t, got.More, attempt)
			require.LessOrEqual(t, len(got.Rows), sqlquery.MaxRows)
		}
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
	as := func(ctx context.Context, name string) context.Context {
		return access.WithActor(ctx, access.Actor{Name: "user:" + name})
	}
	const running = `SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%FETCH%' AND state = 'active'
		AND usename IN (SELECT role FROM postrider_internal.query_logins)`
	start := func(name, number string) {
		go func() {
			const long = "SELECT 'a secret', count(*) FROM generate_series(1, 1e12)"
			_, err := qs.runner.Run(as(ctx, name), sqlquery.Request{SQL: long})
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
	_, err = elsewhere.Run(as(t.Context(), "anna"), sqlquery.Request{SQL: "SELECT 1"})
	require.ErrorIs(t, err, sqlquery.ErrBusy)
	var more sync.WaitGroup
	for name, says := range map[string]string{
		"anna": "at most 2 of your queries at a time", "carla": "4 queries run on this node",
	} {
		more.Go(func() {
			_, err := qs.runner.Run(as(t.Context(), name), sqlquery.Request{SQL: "SELECT 1"})
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
	_, err = qs.runner.Run(as(t.Context(), "anna"), sqlquery.Request{SQL: "SELECT 1"})
	require.NoError(t, err)
}
