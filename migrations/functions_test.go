package migrations_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testdb"
)

// Functions run in sessions of users, who choose search_path and standard_conforming_strings. So PostgreSQL resolves
// the names of a function when it creates it, or the function sets its own path, or its names are qualified.
func TestFunctionsDependOnNoSetting(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	pool := open(t, url)
	const functions = `SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
		WHERE p.pronamespace IN ('postrider'::regnamespace, 'postrider_internal'::regnamespace) AND p.prokind <> 'a' AND `
	qualified := []string{
		"postrider.jsonb_error(bytea)", "postrider.try_jsonb(bytea)", "postrider.try_text(bytea)",
		"postrider_internal.add_buckets(bigint[],bigint[])",
		"postrider_internal.add_to_bucket(bigint[],integer,bigint)", "postrider_internal.event_data(text,bytea)",
	}
	require.Equal(t, qualified, texts(t, pool, functions+`NOT CASE l.lanname WHEN 'sql' THEN p.prosqlbody IS NOT NULL
		ELSE 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{}')) END ORDER BY 1`))
	require.Empty(t, texts(t, pool, functions+`regexp_replace(p.prosrc, '\mE''[^'']*''', '', 'g') LIKE '%\\%'
		AND 'standard_conforming_strings=on' <> ALL (coalesce(p.proconfig, '{}'))`), "backslashes in plain literals")
	require.Equal(t, []string{"true"}, texts(t, open(t, url+"&standard_conforming_strings=off"),
		`SELECT (postrider_internal.envelope_time('time', '2026-11-28T10:00:00Z') IS NOT NULL)::text`))

	// Turkish has other small and capital letters.
	var turkish bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_collation
		WHERE collname = 'tr-x-icu')`).Scan(&turkish))
	if turkish {
		require.Equal(t, []string{"api.info:8080"}, texts(t, pool,
			`SELECT postrider_internal.endpoint_host('HTTPS://API.INFO:8080/I' COLLATE "tr-x-icu")`))
	}
	require.Empty(t, texts(t, pool, functions+`coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) ~ '\m(lower|upper)\('
		AND coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) !~ 'COLLATE "C"'`), "letters of the locale")
	require.Empty(t, texts(t, pool, functions+`coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) LIKE '%\\d%'
		AND coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) !~ 'COLLATE "C"'`), "digits of the locale")

	// Functions of another schema, first in the path, would be preferred to unqualified names.
	_, err := pool.Exec(t.Context(), `CREATE SCHEMA trap; CREATE DOMAIN trap.jsonb AS pg_catalog.jsonb CHECK (false);
		CREATE FUNCTION trap.convert_from(bytea, name) RETURNS text LANGUAGE sql RETURN (1 / 0)::text;
		CREATE FUNCTION trap.encode(bytea, text) RETURNS text LANGUAGE sql RETURN (1 / 0)::text;
		CREATE FUNCTION trap.array_fill(bigint, integer[]) RETURNS bigint[] LANGUAGE sql RETURN ARRAY [1 / 0];
		CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE sql RETURN 1 / 0 = 1;
		CREATE FUNCTION trap.plus(bigint, bigint) RETURNS bigint LANGUAGE sql RETURN 1 / 0;
		CREATE FUNCTION trap.plus(integer, integer) RETURNS integer LANGUAGE sql RETURN 1 / 0;
		CREATE FUNCTION trap.member(jsonb, text) RETURNS jsonb LANGUAGE sql RETURN (1 / 0)::text::jsonb;
		CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.equal);
		CREATE OPERATOR trap.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.plus);
		CREATE OPERATOR trap.+ (LEFTARG = integer, RIGHTARG = integer, FUNCTION = trap.plus);
		CREATE OPERATOR trap.-> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = trap.member)`)
	require.NoError(t, err)
	require.Equal(t, []string{`{"data": 1} 1 {"data": 1} x \377 - 3 5`}, texts(t,
		open(t, url+"&search_path=trap,pg_catalog"), `SELECT concat_ws(' ', postrider.try_jsonb('{"data": 1}'),
		    postrider_internal.event_data('EventGridSchema', '{"data": 1}'),
		    postrider_internal.event_data('CustomEventSchema', '{"data": 1}'), postrider.try_text('x'),
		    postrider.try_text('\xff'), coalesce(postrider.jsonb_error('1'), '-'),
		    (postrider_internal.add_buckets('{1}', '{2}'))[1], (postrider_internal.add_to_bucket(NULL, 1, 5))[2])`))
}

// Recording a dead letter calls it with KeepPlan's settings: a hash join would read all event subscriptions.
func TestNoticesSinceReadsOneTopic(t *testing.T) {
	t.Parallel()
	tx, err := migrated(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO postrider_internal.topics (id, name, kind, input_schema, key1_sealed,
		       key2_sealed, key1_hash, key2_hash)
		SELECT i, CASE i WHEN 1 THEN 'postrider.system' ELSE 't' || i END, 'basic', 'CloudEventSchemaV1_0', '', '', '', ''
		FROM generate_series(1, 101) i;
		INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, endpoint_base_url, endpoint_hash,
		       event_delivery_schema, retry_policy)
		SELECT 1 + i, 's', '{}', '', '', 'CloudEventSchemaV1_0', 'ga-2021' FROM generate_series(0, 100) i`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), postgres.KeepPlan)
	require.NoError(t, err)
	const readRows = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
		WHERE relid = 'postrider_internal.event_subscriptions'::regclass`
	var before, after int
	var found bool
	require.NoError(t, tx.QueryRow(t.Context(), readRows).Scan(&before))
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT postrider_internal.notices_since() = now()").Scan(&found))
	require.NoError(t, tx.QueryRow(t.Context(), readRows).Scan(&after))
	require.True(t, found)
	require.Equal(t, 1, after-before)
}

// A publication of all tables rejects changes of a table that has neither a key nor a replica identity. A full one is
// not free: PostgreSQL logs the old row of each change if wal_level is logical.
func TestTablesHaveAReplicaIdentity(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	_, err := pool.Exec(t.Context(), `SELECT postrider_internal.create_partition(relname, '2020-01-02') FROM pg_class
		WHERE relkind = 'p' AND relnamespace = 'postrider_internal'::regnamespace`)
	require.NoError(t, err)
	const tables = `SELECT regexp_replace(c.oid::regclass::text, '_\d{8}$', '_DAY') FROM pg_class c
		WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN ('postrider'::regnamespace, 'postrider_internal'::regnamespace)
		    AND `
	require.Equal(t, []string{
		"postrider_internal.delivery_attempts", "postrider_internal.delivery_attempts_DAY",
		"postrider_internal.rollup_deltas",
	}, texts(t, pool, tables+"c.relreplident = 'f' GROUP BY 1 ORDER BY 1"))
	require.Empty(t, texts(t, pool, tables+`c.relreplident <> 'f' AND (c.relreplident <> 'd' OR NOT EXISTS (
		SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))`))
}
