package sqlquery_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/postgres"
	"postrider/sqlquery"
)

const (
	denied    = `permission denied|must be superuser|must be a member|superuser|cannot execute|is not allowed`
	notSelect = `syntax error at or near`
	readOnly  = `read-only transaction|transaction read-write mode|is not allowed in a non-volatile function`
	none      = "" // the query succeeds and changes nothing
)

// breakouts are attempts to write, to get more rights, to stay longer or to reach another session. want is a regular
// expression of the error.
var breakouts = []struct {
	want     string
	attempts []string
}{
	// Roles.
	{notSelect, []string{"SET ROLE postgres", "RESET ROLE", "SET SESSION AUTHORIZATION postgres", "RESET ALL"}},
	{denied, []string{
		"SELECT set_config('role', 'postgres', false)",
		"SELECT set_config('role', 'postgres', true), query_to_xml('SELECT * FROM postrider_internal.users', true, true, '')",
		"SELECT set_config('role', 'postrider_operator', false)",
		"SELECT set_config('role', 'postrider_publisher', false)",
		"SELECT set_config('role', 'pg_read_server_files', false), pg_read_file('/etc/passwd')",
		"SELECT set_config('session_authorization', 'postgres', false)",
		"SELECT set_config('role', 'none', false), query_to_xml('SELECT * FROM postrider_internal.users', true, true, '')",
		"SELECT set_config('role', 'postrider_reader', false), " +
			"query_to_xml('SELECT * FROM postrider_internal.users', true, true, '')",
	}},
	{"does not exist", []string{
		"SELECT set_config('search_path', 'postrider_internal', false), query_to_xml('SELECT * FROM users', true, true, '')",
	}},
	// Settings.
	{readOnly, []string{
		"SELECT set_config('transaction_read_only', 'off', true)",
		"SELECT set_config('transaction_read_only', 'off', false), " +
			"query_to_xml('DELETE FROM public.canary RETURNING 1', true, true, '')",
		"SELECT query_to_xml('SET transaction_read_only = off', true, true, '')",
		"SELECT query_to_xml('SET ROLE postgres', true, true, '')", "SELECT query_to_xml('NOTIFY c', true, true, '')",
		"SELECT query_to_xml('LISTEN c', true, true, '')", "SELECT query_to_xml('CREATE TEMP TABLE t()', true, true, '')",
		"SELECT query_to_xml('CLOSE postrider_query', true, true, '')",
		"SELECT query_to_xml('COPY public.canary TO ''/tmp/canary''', true, true, '')",
		"SELECT query_to_xml('DO $$ BEGIN END $$', true, true, '')",
		"SELECT query_to_xml('INSERT INTO public.canary VALUES (2) RETURNING 1', true, true, '')",
	}},
	{"invalid query", []string{
		"SELECT query_to_xml('COMMIT', true, true, '')", "SELECT query_to_xml('ROLLBACK', true, true, '')",
	}},
	{"must be called before any query", []string{"SELECT set_config('transaction_isolation', 'serializable', true)"}},
	{denied, []string{
		"SELECT set_config('session_replication_role', 'replica', false)",
		"SELECT set_config('log_statement', 'none', false)",
		"SELECT set_config('temp_file_limit', '-1', false)", "SELECT set_config('lo_compat_privileges', 'on', false)",
		"SELECT set_config('session_preload_libraries', 'x', false)", "SELECT set_config('log_min_messages', 'panic', false)",
		"SELECT current_setting('data_directory')", "SELECT * FROM pg_hba_file_rules", "SELECT * FROM pg_file_settings",
	}},
	{none, []string{
		"SELECT set_config('default_transaction_read_only', 'off', false)",
		"SELECT set_config('idle_in_transaction_session_timeout', '0', false)",
		"SELECT set_config('row_security', 'off', false)", "SELECT set_config('work_mem', '1GB', false)",
		"SELECT set_config('client_encoding', 'LATIN1', false), 'é'", "SELECT set_config('lock_timeout', '0', false)",
		"SELECT set_config('application_name', 'postrider', false)",
	}},
	// Writes.
	{notSelect, []string{
		"INSERT INTO public.canary VALUES (2)", "UPDATE public.canary SET n = 2", "DELETE FROM public.canary",
		"TRUNCATE public.canary", "MERGE INTO public.canary USING (VALUES (1)) v ON true WHEN MATCHED THEN DELETE",
		"CREATE TABLE t()", "CREATE TEMP TABLE t()", "CREATE TABLE t AS SELECT 1", "DROP TABLE public.canary",
		"DO $$ BEGIN DELETE FROM public.canary; END $$", "CALL p()", "GRANT ALL ON public.canary TO PUBLIC",
		"ALTER ROLE CURRENT_USER PASSWORD 'x'", "ALTER ROLE CURRENT_USER CONNECTION LIMIT -1", "CREATE EXTENSION dblink",
		"COPY public.canary TO STDOUT", "COPY public.canary FROM STDIN", "COPY public.canary TO '/tmp/canary'",
		"COPY (SELECT 1) TO PROGRAM 'touch /tmp/canary'", "LOCK TABLE postrider.topics", "VACUUM", "CHECKPOINT",
		"EXPLAIN ANALYZE DELETE FROM public.canary", "EXPLAIN SELECT 1", "PREPARE p AS SELECT 1", "EXECUTE p",
		"DEALLOCATE ALL", "DISCARD ALL", "LISTEN c", "NOTIFY c", "UNLISTEN *", "LOAD 'dblink'", "SHOW data_directory",
		"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "SET TRANSACTION READ WRITE", "COMMIT PREPARED 'x'",
		"CLOSE postrider_query", "FETCH ALL FROM postrider_query", "DECLARE c CURSOR FOR SELECT 1",
	}},
	{"not allowed here", []string{"SELECT 1 INTO t", "SELECT 1 INTO TEMP t"}},
	{"must not contain data-modifying", []string{
		"WITH gone AS (DELETE FROM public.canary RETURNING 1) SELECT * FROM gone",
		"WITH made AS (INSERT INTO public.canary VALUES (2) RETURNING 1) SELECT * FROM made",
		"WITH changed AS (UPDATE public.canary SET n = 2 RETURNING 1) SELECT * FROM changed",
	}},
	{denied + "|" + readOnly, []string{
		"SELECT * FROM postrider.topics FOR UPDATE", "SELECT * FROM public.canary FOR SHARE",
		"SELECT nextval('postrider_internal.audit_id_seq')", "SELECT setval('public.canary_seq', 99)",
		"SELECT nextval('public.canary_seq')", "SELECT lo_import('/etc/passwd')", "SELECT lo_export(1, '/tmp/canary')",
		"SELECT lo_open(1, 131072)",
	}},
	{none, []string{"SELECT lo_create(0)", "SELECT lo_creat(-1)", "SELECT lo_from_bytea(0, 'x')"}}, // rolled back
	// Other data.
	{denied, []string{
		"SELECT * FROM public.canary", "SELECT * FROM postrider_internal.users", "TABLE postrider_internal.query_logins",
		"SELECT * FROM postrider_internal.river_job", "SELECT * FROM postrider_internal.queries", "TABLE pg_authid",
		"SELECT * FROM pg_shadow", "SELECT * FROM pg_user_mapping", "SELECT * FROM pg_largeobject",
		"SELECT * FROM pg_statistic", "SELECT pg_read_file('/etc/passwd')", "SELECT pg_read_binary_file('/etc/passwd')",
		"SELECT pg_ls_dir('/')", "SELECT pg_stat_file('/etc/passwd')", "SELECT pg_ls_logdir()", "SELECT pg_current_logfile()",
	}},
	// Functions with effects.
	{denied, []string{
		"SELECT postrider.purge(gen_random_uuid())", "SELECT postrider.redeliver(gen_random_uuid())",
		"SELECT postrider.pause('orders', 'billing')", "SELECT postrider.cancel(1)", "SELECT postrider.erase_event(NULL)",
		"SELECT postrider.publish('orders', '{}')", "SELECT postrider.test_delivery('orders', 'billing')",
		"SELECT postrider_internal.note_audit('a', 'b', 'c', 'd', 'e', '{}')", "SELECT pg_reload_conf()",
		"SELECT pg_switch_wal()", "SELECT pg_promote()", "SELECT pg_rotate_logfile()", "SELECT pg_stat_reset()",
		"SELECT pg_create_restore_point('x')", "SELECT pg_create_physical_replication_slot('x')",
		"SELECT pg_create_logical_replication_slot('x', 'pgoutput')", "SELECT pg_drop_replication_slot('x')",
		"SELECT pg_replication_origin_create('x')", "SELECT pg_backup_start('x')", "SELECT pg_wal_replay_pause()",
		"SELECT pg_log_backend_memory_contexts(pg_backend_pid())",
	}},
	{none, []string{
		"SELECT pg_notify('canary', 'from a query')", "SELECT pg_advisory_lock(42)", "SELECT pg_advisory_lock_shared(42)",
		"SELECT pg_advisory_xact_lock(42)", "SELECT pg_try_advisory_lock(42)", "SELECT pg_export_snapshot()",
		"SELECT pg_logical_emit_message(true, 'canary', 'x')",
		`SELECT xmlparse(document '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>')`,
	}},
	{"terminating connection", []string{"SELECT pg_terminate_backend(pg_backend_pid())"}},
	{"canceling statement", []string{"SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)"}},
	{"password or GSSAPI|password is required|could not establish connection|not available", []string{
		"SELECT public.dblink_connect('c', 'host=/tmp')",
		"SELECT * FROM public.dblink('dbname=postgres', 'SELECT 1') AS t(n int)",
		"SELECT public.dblink_exec('dbname=postgres user=postgres', 'DELETE FROM public.canary')",
	}},
	// Texts that end our statement.
	{"a query has one statement", []string{
		"SELECT 1; SELECT 2", "SELECT 1; DELETE FROM public.canary", "SELECT 1; COMMIT; DELETE FROM public.canary",
		"SELECT 1; CLOSE postrider_query; DECLARE postrider_query CURSOR FOR SELECT 2",
		"SELECT 1 --\n; DROP TABLE public.canary", "SELECT 1 /* */; DROP TABLE public.canary",
		"VALUES (1); SET ROLE postgres",
	}},
	{"unterminated", []string{"SELECT '", `SELECT "`, "SELECT $$", "SELECT 1 /*", "SELECT $q$ $$", "SELECT E'\\'"}},
	{"syntax error", []string{
		"SELECT 1) TO STDOUT", "-- nothing", "SELECT 1 WITH HOLD", ";", "); DROP TABLE public.canary", "$1",
		"SELECT 1 \\; DROP TABLE public.canary", "TABLE",
	}},
	{"without the character 0", []string{"SELECT 1\x00; DROP TABLE public.canary", "SELECT '\xff'", "\x00"}},
	{"cannot be run|does not exist|is not allowed|already active", []string{
		"SELECT cursor_to_xml('postrider_query', 1, true, true, '')", "SELECT cursor_to_xml('other', 1, true, true, '')",
	}},
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
	b := setup(t, sqlquery.Options{})
	b.exec(t, "CREATE TABLE public.canary (n int); INSERT INTO public.canary VALUES (1); "+
		"CREATE SEQUENCE public.canary_seq; CREATE EXTENSION dblink; SELECT lo_create(1); "+
		"CREATE PROCEDURE postrider.p() LANGUAGE sql AS 'SELECT 1'")
	listener, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer listener.Close(context.WithoutCancel(t.Context()))
	_, err = listener.Exec(t.Context(), "LISTEN canary")
	require.NoError(t, err)
	before, attempts := b.text(t, state), 0
	for _, group := range breakouts {
		for _, attempt := range group.attempts {
			attempts++
			_, err := b.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
			if group.want == none {
				require.NoError(t, err, attempt)
			} else {
				require.Error(t, err, attempt)
				require.Regexp(t, group.want, err.Error(), attempt)
				var rejected *sqlquery.Error
				require.ErrorAs(t, err, &rejected, attempt)
			}
			require.Eventually(t, func() bool { return b.text(t, state) == before }, time.Minute, time.Millisecond, attempt)
		}
	}
	require.Greater(t, attempts, 60)
	b.exec(t, "NOTIFY canary, 'from the test'")
	got, err := listener.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "from the test", got.Payload, "the notification of a query was dropped")
	result, err := b.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT '" + strings.Repeat("é", 3) + "'"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"ééé"}}, texts(result.Rows))
}

// No setting and no function keeps a query beyond the deadline or the limits.
func TestBreakoutsOfLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, sqlquery.Options{Timeout: 300 * time.Millisecond})
	for _, attempt := range []string{
		"SELECT pg_sleep(60)", "SELECT pg_sleep_for('1 minute')", "SELECT pg_sleep_until(now() + '1 minute')",
		"SELECT set_config('statement_timeout', '0', false), pg_sleep(60)",
		"WITH RECURSIVE r AS (SELECT set_config('statement_timeout', '0', true) UNION ALL " +
			"SELECT pg_sleep(60)::text FROM r) SELECT * FROM r", "SELECT count(*) FROM generate_series(1, 1e12)",
		"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
		"SELECT query_to_xml('SELECT pg_sleep(60)', true, true, '')", "SELECT repeat('a', 40) ~ '(a*)*b' FROM pg_sleep(60)",
		"SELECT n, pg_sleep(0.05) FROM generate_series(1, 1000) n",
	} {
		_, err := b.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.ErrorIs(t, err, sqlquery.ErrDeadline, attempt)
		b.idle(t)
	}
	b = setup(t, sqlquery.Options{})
	for attempt, want := range map[string]error{
		"SELECT repeat('x', 100000000)": sqlquery.ErrTooLarge, "SELECT repeat('x', 9 << 20)": sqlquery.ErrTooLarge,
		"SELECT array_agg(n) FROM generate_series(1, 3000000) n":  sqlquery.ErrTooLarge,
		"SELECT * FROM generate_series(1, 100000)":                nil,
		"SELECT repeat('x', 1 << 20) FROM generate_series(1, 90)": nil,
	} {
		got, err := b.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.ErrorIs(t, err, want, attempt)
		if want == nil {
			require.True(t, got.More, attempt)
			require.LessOrEqual(t, len(got.Rows), sqlquery.MaxRows)
		}
	}
}

// idle waits until no query runs in PostgreSQL.
func (b *bundle) idle(t *testing.T) {
	t.Helper()
	const running = `SELECT count(*)::text FROM pg_stat_activity
		WHERE usename IN (SELECT role FROM postrider_internal.query_logins)`
	require.Eventually(t, func() bool { return b.text(t, running) == "0" }, time.Minute, 10*time.Millisecond)
}

// Of two concurrent users, neither sees the other's query or ends it. A user's third query and a node's fifth are
// rejected, and on another node those that find no login.
func TestConcurrentQueries(t *testing.T) {
	t.Parallel()
	b := setup(t, sqlquery.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, sqlquery.Logins)
	as := func(ctx context.Context, name string) context.Context {
		return access.WithActor(ctx, access.Actor{Name: "user:" + name})
	}
	start := func(name string) {
		go func() {
			_, err := b.runner.Run(as(ctx, name), sqlquery.Request{SQL: "SELECT 'a secret', pg_sleep(600)"})
			ended <- err
		}()
	}
	const running = `SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%FETCH%' AND wait_event = 'PgSleep'
		AND usename IN (SELECT role FROM postrider_internal.query_logins)`
	start("anna")
	require.Eventually(t, func() bool { return b.text(t, running) == "1" }, time.Minute, 10*time.Millisecond)
	pid := b.text(t, `SELECT pid::text FROM pg_stat_activity WHERE wait_event = 'PgSleep'
		AND usename IN (SELECT role FROM postrider_internal.query_logins)`)
	for _, attempt := range []string{
		"SELECT pg_terminate_backend(" + pid + ")", "SELECT pg_cancel_backend(" + pid + ")",
		"SELECT pg_log_backend_memory_contexts(" + pid + ")",
	} {
		_, err := b.runner.Run(t.Context(), sqlquery.Request{SQL: attempt})
		require.Error(t, err, attempt)
		require.Regexp(t, denied, err.Error(), attempt)
	}
	seen, err := b.runner.Run(t.Context(), sqlquery.Request{
		SQL: "SELECT query, client_addr, state FROM pg_stat_activity WHERE pid = " + pid,
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"<insufficient privilege>", "NULL", "NULL"}}, texts(seen.Rows))
	require.Equal(t, "1", b.text(t, running), "the query still runs")

	for _, name := range []string{"anna", "bob", "bob"} {
		start(name)
	}
	require.Eventually(t, func() bool { return b.text(t, running) == "4" }, time.Minute, 10*time.Millisecond)
	elsewhere, err := sqlquery.NewRunner(postgres.NewDB(b.pool), b.sealer, sqlquery.Options{})
	require.NoError(t, err)
	_, err = elsewhere.Run(as(t.Context(), "anna"), sqlquery.Request{SQL: "SELECT 1"})
	require.ErrorIs(t, err, sqlquery.ErrBusy)
	var more sync.WaitGroup
	for name, says := range map[string]string{"anna": "2 of your queries run", "carla": "4 queries run on this node"} {
		more.Go(func() {
			_, err := b.runner.Run(as(t.Context(), name), sqlquery.Request{SQL: "SELECT 1"})
			var busy *postgres.BusyError
			assert.ErrorAs(t, err, &busy)
			assert.ErrorContains(t, err, says)
			assert.Equal(t, name == "anna", busy.Own)
		})
	}
	more.Wait()
	cancel()
	for range sqlquery.Logins {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	b.idle(t)
}
