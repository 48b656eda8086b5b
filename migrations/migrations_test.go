package migrations_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/migrations"
)

// The template database is migrated: only the tests of migrations begin with an empty one.
func TestMain(m *testing.M) {
	os.Exit(testdb.Run(m, testdb.Template{Fill: func(ctx context.Context, url string) error {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		return migrations.Up(ctx, pool, io.Discard)
	}}))
}

// migrated returns connections to a migrated database.
func migrated(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return testdb.Pool(t, testdb.New(t))
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func texts(t *testing.T, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func TestUpFromManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	url := testdb.Empty(t)
	before, err := migrations.ReadStatus(t.Context(), open(t, url))
	require.NoError(t, err)
	require.Zero(t, before.Current)
	require.False(t, before.Ready())

	var group sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		pool := open(t, url)
		group.Go(func() { errs[i] = migrations.Up(context.Background(), pool, io.Discard) })
	}
	group.Wait()

	for _, err := range errs {
		require.NoError(t, err)
	}
	after, err := migrations.ReadStatus(t.Context(), open(t, url))
	require.NoError(t, err)
	require.True(t, after.Ready())
	require.Equal(t, migrations.RiverVersion, after.River)
}

func TestEveryPublicNameHasAComment(t *testing.T) {
	t.Parallel()
	pool := migrated(t)

	require.Empty(t, texts(t, pool, `SELECT c.relname || coalesce('.' || a.attname, '') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'postrider'
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		WHERE c.relkind IN ('v', 'm') AND (obj_description(c.oid, 'pg_class') IS NULL OR (a.attnum IS NOT NULL
		    AND col_description(c.oid, a.attnum) IS NULL))`))
	require.Empty(t, texts(t, pool,
		`SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'postrider'
		WHERE obj_description(p.oid, 'pg_proc') IS NULL`))
	require.NotEmpty(t, texts(t, pool, "SELECT viewname FROM pg_views WHERE schemaname = 'postrider'"))
}

// Columns that several views share have one name and one type.
func TestSharedColumnsHaveOneType(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	require.Empty(t,
		texts(t, pool, `SELECT column_name || ': ' || string_agg(DISTINCT data_type, ', ') FROM information_schema.columns
		WHERE table_schema = 'postrider' GROUP BY column_name HAVING count(DISTINCT data_type) > 1`))
}

func TestReaderReadsTheViewsAndNothingElse(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	views := texts(t, pool, "SELECT viewname FROM pg_views WHERE schemaname = 'postrider'")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL ROLE postrider_reader")
	require.NoError(t, err)
	for _, view := range views {
		_, err := tx.Exec(t.Context(), "SELECT * FROM postrider."+view)
		require.NoError(t, err, view)
	}
	_, err = tx.Exec(t.Context(), "SELECT * FROM postrider_internal.topics")
	require.ErrorContains(t, err, "permission denied")
}

// A view uses no column with a secret, whatever name it gives to it. It may say whether there is one.
func TestSecretsAppearInNoView(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"subscription_holds: endpoint_hash"}, texts(t, migrated(t), `
		SELECT relname || ': ' || (regexp_matches(regexp_replace(pg_get_viewdef(oid), '\S+ IS NOT NULL', '', 'g'),
		       '\w+_(?:sealed|hash)\M|\mproof\M', 'g'))[1] FROM pg_class
		 WHERE relkind = 'v' AND relnamespace IN ('postrider'::regnamespace, 'postrider_internal'::regnamespace)`))
}

func TestViewsInParallelQueries(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id,
		    subscription_id, topic_id, topic, subscription,
		endpoint_base_url, reason, attempts, time_to_live_since, published_at, event_uuid, event_id, event_type, subject,
		    source,
		    data_version, schema, retry_policy, body, last_response)
		SELECT gen_random_uuid(), now(), i, 1, 1, 't', 's', '', 'r', 1, now(), now(), gen_random_uuid(), 'e', '', '', '', '',
		       '', '', convert_to('{"a":"\u0000"}', 'UTF8'), '\xff'
		FROM generate_series(1, 5000) i`)
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL parallel_setup_cost = 0; SET "+
		"LOCAL parallel_tuple_cost = 0; SET LOCAL max_parallel_workers_per_gather = 2")
	require.NoError(t, err)
	var rows, errors int
	query := "SELECT count(*), count(body_error) FROM postrider.dead_letters WHERE body IS NULL AND last_response <> ''"
	require.NoError(t, tx.QueryRow(t.Context(), query).Scan(&rows, &errors))
	require.Equal(t, 5000, rows)
	require.Equal(t, 5000, errors)
}

// A failed attempt must not write all indexes of the delivery again.
func TestFailedAttemptIsAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO postrider_internal.deliveries (subscription_id, topic_id, event_uuid,
		       event_day, event_bytes, job_id, time_to_live_since, next_attempt_at)
		VALUES (1, 1, gen_random_uuid(), current_date, 10, 1, now(), now())`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE postrider_internal.deliveries
		   SET attempts = 1, skipped_offsets = 1, last_status = 503, last_outcome = 'Busy', first_attempt_at = now(),
		       last_attempt_at = now(), next_attempt_at = now() + interval '10 seconds', job_id = 2, not_before = now(),
		       last_hold = 'admission', held_reruns = 1`)
	require.NoError(t, err)
	var inPlace int
	require.NoError(t, tx.QueryRow(t.Context(),
		"SELECT pg_stat_get_xact_tuples_hot_updated('postrider_internal.deliveries'::regclass)").Scan(&inPlace))
	require.Equal(t, 1, inPlace)
}

func TestDownAndUp(t *testing.T) {
	t.Parallel()
	pool := open(t, testdb.Empty(t))
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
	require.NoError(t, migrations.Down(t.Context(), pool, 0))
	require.Empty(t, texts(t, pool, "SELECT viewname FROM pg_views WHERE schemaname = 'postrider'"))
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
}

func TestBodiesThatJsonbCannotHoldBreakNoView(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	for name, body := range map[string]string{
		"NUL": `{"a":"\u0000"}`, "lone surrogate": `{"a":"\ud800"}`, "huge number": `{"a":1e999999}`,
		"deep": strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
	} {
		var isNull bool
		var why *string
		err := pool.QueryRow(t.Context(), "SELECT postrider.try_jsonb($1) IS NULL, postrider.jsonb_error($1)", []byte(body)).
			Scan(&isNull, &why)
		require.NoError(t, err, name)
		require.True(t, isNull, name)
		require.NotNil(t, why, name)
	}
}

// Any login can hold the lock: that delays a migration, and the notice names the session.
func TestUpReportsTheHolderOfItsLock(t *testing.T) {
	t.Parallel()
	pool := open(t, testdb.Empty(t))
	holder, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.Background()) }()
	_, err = holder.Exec(t.Context(),
		"SELECT set_config('application_name', 'forgotten', true), pg_advisory_xact_lock(x'706f7374'::bigint)")
	require.NoError(t, err)
	notices, written := io.Pipe()
	migrated := make(chan error, 1)
	go func() { migrated <- errors.Join(migrations.Up(t.Context(), pool, written), written.Close()) }()

	notice, err := bufio.NewReader(notices).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t,
		`^The migration waits. Advisory lock 1886352244, .* is held by process [0-9]+ \(forgotten, role postgres\)\.`, notice)
	require.NoError(t, holder.Rollback(t.Context()))
	_, err = io.Copy(io.Discard, notices)
	require.NoError(t, err)
	require.NoError(t, <-migrated)
}

// A migration is not changed after a database has it.
func TestUpRejectsAChangedMigration(t *testing.T) {
	t.Parallel()
	pool := open(t, testdb.Empty(t))
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
	status, err := migrations.ReadStatus(t.Context(), pool)
	require.NoError(t, err)
	files, err := filepath.Glob("0*.sql")
	require.NoError(t, err)
	require.Len(t, texts(t, pool, "SELECT sha256 FROM postrider_internal.migration_checksums"), len(files))
	require.NoError(t, migrations.Down(t.Context(), pool, status.Target-1))
	require.Len(t, texts(t, pool, "SELECT sha256 FROM postrider_internal.migration_checksums"), len(files)-1)

	for _, row := range []struct{ change, then string }{
		{"UPDATE postrider_internal.migration_checksums SET sha256 = 'abc' WHERE version = 2", "abc"},
		{"DELETE FROM postrider_internal.migration_checksums WHERE version = 2", "unknown"},
	} {
		_, err = pool.Exec(t.Context(), row.change)
		require.NoError(t, err)
		err = migrations.Up(t.Context(), pool, io.Discard)
		require.ErrorContains(t, err, "migration 00002_")
		require.ErrorContains(t, err, "SHA-256 then "+row.then)
		require.ErrorContains(t, err, "run the release of postrider that created this database")
		after, err := migrations.ReadStatus(t.Context(), pool)
		require.NoError(t, err)
		require.Equal(t, status.Target-1, after.Current, "nothing was applied")
	}
}

// A newer release migrated the database first: its migrations are no reason to reject it.
func TestUpAcceptsLaterMigrations(t *testing.T) {
	t.Parallel()
	pool := open(t, testdb.Clone(t))
	_, err := pool.Exec(t.Context(),
		`INSERT INTO postrider_internal.goose_db_version (version_id, is_applied) VALUES (9999, true);
		INSERT INTO postrider_internal.migration_checksums (version, file, sha256) VALUES (9999, '09999_later.sql', 'abc')`)
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), pool, io.Discard))
	status, err := migrations.ReadStatus(t.Context(), pool)
	require.NoError(t, err)
	require.EqualValues(t, 9999, status.Current)
}

// Migrations run in sessions with postrider's settings, whatever the database's are: TestSessionsHaveTheirSettings.
func TestMigrateADatabaseWithUnusualSettings(t *testing.T) {
	t.Parallel()
	url := testdb.Empty(t)
	testdb.SetUnusual(t, url, testdb.UnusualSettings)
	require.NoError(t, migrations.Up(t.Context(), testdb.Pool(t, url), io.Discard))
}

// A database that cannot hold all texts is rejected before anything is created in it.
func TestMigrateADatabaseWithAnotherEncoding(t *testing.T) {
	t.Parallel()
	admin := testdb.Pool(t, testdb.Empty(t))
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := "encoding_" + strings.ToLower(encoding)
		_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
		u, err := url.Parse(admin.Config().ConnString())
		require.NoError(t, err)
		u.Path = "/" + name
		pool := testdb.Pool(t, u.String())
		require.EqualError(t, migrations.Up(t.Context(), pool, io.Discard), "the encoding of database "+name+" is "+
			encoding+"; the database's encoding must be UTF8: create another one with CREATE DATABASE … ENCODING 'UTF8' "+
			"TEMPLATE template0")
		require.Empty(t, texts(t, pool, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'postrider%'"))
	}
}
