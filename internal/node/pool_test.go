package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testdb"
)

// What the URL says of pgx's caches stays; what it leaves open is lowered; statements run in each mode.
func TestPreparedStatementsOfConnections(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	for parameters, want := range map[string][2]int{
		"":                              {128, 0},
		"&statement_cache_capacity=40":  {40, 0},
		"&statement_cache_capacity=512": {512, 0},
		"&default_query_exec_mode=cache_describe":                               {128, 128},
		"&default_query_exec_mode=describe_exec":                                {128, 128},
		"&default_query_exec_mode=exec":                                         {128, 128},
		"&description_cache_capacity=30":                                        {128, 0},
		"&default_query_exec_mode=cache_describe&description_cache_capacity=30": {128, 30},
	} {
		pool, err := postgres.OpenPool(t.Context(), url+parameters, 1)
		require.NoError(t, err, parameters)
		t.Cleanup(pool.Close)
		config := pool.Config().ConnConfig
		require.Equal(t, want, [2]int{config.StatementCacheCapacity, config.DescriptionCacheCapacity}, parameters)
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT $1::int + 1", 41).Scan(&n), parameters)
		require.Equal(t, 42, n)
		require.False(t, postgres.ThroughPgBouncer(pool), parameters)
	}
	pooled, err := postgres.OpenPoolThroughPgBouncer(t.Context(), url+"&statement_cache_capacity=40", 1)
	require.NoError(t, err)
	t.Cleanup(pooled.Close)
	require.True(t, postgres.ThroughPgBouncer(pooled))
}

func TestTimesAreReadInUTC(t *testing.T) {
	t.Parallel()
	pool, err := postgres.OpenPool(t.Context(), testdb.Clone(t)+"&timezone=Asia/Tokyo", 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		var one time.Time
		var list []*time.Time
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT now(), array[now(), null]", mode).Scan(&one, &list))
		require.Equal(t, time.UTC, one.Location())
		require.Equal(t, time.UTC, list[0].Location())
	}
}

// Whatever the database's settings and PGOPTIONS are, each session of ours has those that it depends on; behind a
// pooler, those that the pooler keeps. A URL may change the tunable ones.
func TestSessionsHaveTheirSettings(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	testdb.SetUnusual(t, url, testdb.UnusualSettings)
	const own = "&DATESTYLE=SQL&search_path=public&options=-c%20timezone%3DAsia/Tokyo"
	direct, err := postgres.OpenPool(t.Context(), url+own, 1)
	require.NoError(t, err)
	t.Cleanup(direct.Close)
	pooled, err := postgres.OpenPoolThroughPgBouncer(t.Context(), url, 1)
	require.NoError(t, err)
	t.Cleanup(pooled.Close)
	// The heartbeat, the listener and database/sql connect with the pool's configuration.
	single, err := pgx.ConnectConfig(t.Context(), direct.Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { postgres.CloseConn(single) })
	current := func(db postgres.Querier, name string) (value string) {
		const query = "SELECT coalesce(pg_catalog.current_setting($1, true), 'unknown')"
		require.NoError(t, db.QueryRow(t.Context(), query, name).Scan(&value))
		return value
	}
	for _, s := range postgres.Settings {
		require.NotEmpty(t, s.Reason, s.Name)
		if current(direct, s.Name) == "unknown" {
			require.Equal(t, "transaction_timeout", s.Name)
			continue
		}
		require.Equal(t, s.Value, current(direct, s.Name), s.Name)
		require.Equal(t, s.Value, current(single, s.Name), s.Name)
		if _, unusual := testdb.UnusualSettings[strings.ToLower(s.Name)]; unusual {
			require.Equal(t, s.Pooled, current(pooled, s.Name) == s.Value, s.Name)
		}
	}
	// A function that a user plants in another schema never runs as the service.
	require.Equal(t, "pg_catalog, pg_temp", current(direct, "search_path"))
	tuned, err := postgres.OpenPool(t.Context(), url+"&LOCK_TIMEOUT=9s&statement_timeout=8s&bytea_output=escape", 1)
	require.NoError(t, err)
	t.Cleanup(tuned.Close)
	require.Equal(t, "9s 8s hex", current(tuned, "lock_timeout")+" "+current(tuned, "statement_timeout")+" "+
		current(tuned, "bytea_output"))
}

// Through a pooler, only the role can have the other settings. The statements set what is missing.
func TestSettingsThroughAPooler(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	testdb.SetUnusual(t, url, testdb.UnusualSettings)
	missing := func() string {
		pool, err := postgres.OpenPoolThroughPgBouncer(t.Context(), url, 1)
		require.NoError(t, err)
		defer pool.Close()
		statements, err := postgres.MissingSettings(t.Context(), pool)
		require.NoError(t, err)
		return statements
	}
	statements := missing()
	for _, s := range postgres.Settings {
		unchanged := s.Pooled || s.Name == "plan_cache_mode" || s.Name == "default_table_access_method" ||
			s.Name == "transaction_timeout" ||
			// A value that an operator has chosen stays.
			s.Name == "lock_timeout" || s.Name == "idle_in_transaction_session_timeout"
		require.Equal(t, !unchanged, strings.Contains(statements, " SET "+s.Name+" = "), "%s: %s", s.Name, statements)
	}
	_, err := testdb.Pool(t, url).Exec(t.Context(), statements)
	require.NoError(t, err)
	require.Empty(t, missing())
}

// Errors of values are mapped once: another try fails as well, and the client can correct it.
func TestErrorsOfPostgreSQL(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t, testdb.New(t))
	const value, outage, other = "value", "outage", "other"
	for _, row := range []struct {
		kind, statement string
		args            []any
	}{
		{value, "SELECT $1::text", []any{"a\x00b"}},
		{value, "SELECT $1::text", []any{"\xff"}},
		{value, "SELECT $1::text::jsonb", []any{`"a\u0000"`}},
		{value, "SELECT $1::text::numeric", []any{"1e131073"}},
		{value, "SELECT $1::text::timestamptz", []any{"300000-01-01"}},
		{value, "SELECT $1::text::integer", []any{"9999999999"}},
		{value, "SELECT $1::text::jsonb", []any{strings.Repeat("[", 100_000)}},
		{outage, "DO 'BEGIN RAISE ''no partition'' USING ERRCODE = ''55000''; END'", nil},
		{outage, "DO 'BEGIN RAISE ''locked'' USING ERRCODE = ''55P03''; END'", nil},
		{outage, "SET TRANSACTION READ ONLY; CREATE TABLE x ()", nil},
		{other, "DO 'BEGIN RAISE ''no topic'' USING ERRCODE = ''22023''; END'", nil},
		{other, "SELECT currval('postrider_internal.deliveries_id_seq')", nil}, // 55000 by PostgreSQL itself
		{other, "SELECT 1 FROM nothing", nil},
	} {
		_, err := pool.Exec(t.Context(), row.statement, row.args...)
		require.Error(t, err, row.statement)
		err = postgres.Outage("run it", err)
		require.Equal(t, row.kind == outage, errors.Is(err, postgres.ErrUnavailable), "%s: %v", row.statement, err)
		require.Equal(t, row.kind == value, errors.Is(err, postgres.ErrInvalid), "%s: %v", row.statement, err)
		require.NotEmpty(t, postgres.SQLState(err), "the log has it")
	}
}

// A session that began before the setting changed can still write; a new one cannot, so the node is not ready.
func TestReadinessOfADatabaseThatAcceptsNoWrites(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	pool := testdb.Pool(t, url)
	reader := query.NewReader(postgres.NewDB(pool), postgres.NewClock())
	readOnly := func() bool {
		r, err := reader.Readiness(t.Context(), "", "")
		require.NoError(t, err)
		return r.ReadOnly
	}
	require.False(t, readOnly())
	testdb.SetUnusual(t, url, map[string]string{"default_transaction_read_only": "on"})
	require.True(t, readOnly())
	require.NoError(t, postgres.CheckWritable(t.Context(), pool))
	fresh := testdb.Pool(t, url)
	require.ErrorContains(t, postgres.CheckWritable(t.Context(), fresh), "default_transaction_read_only is on")
	_, err := pool.Exec(t.Context(), "SET default_transaction_read_only = off; DO $$ BEGIN EXECUTE format("+
		"'ALTER ROLE %I IN DATABASE %I SET default_transaction_read_only = off', session_user, current_database()); END $$")
	require.NoError(t, err)
	require.False(t, readOnly(), "the role's setting is the stronger one")
}
