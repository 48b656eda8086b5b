package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testdb"
)

// What the URL says of pgx's caches stays; what it leaves open is lowered; statements run in each mode.
func TestStatementsThatConnectionsRemember(t *testing.T) {
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
	direct, err := postgres.OpenPool(t.Context(), url+"&DATESTYLE=SQL&search_path=public&options=-c%20timezone%3DAsia/Tokyo", 1)
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
			// A value that someone has chosen stays.
			s.Name == "lock_timeout" || s.Name == "idle_in_transaction_session_timeout"
		require.Equal(t, !unchanged, strings.Contains(statements, " SET "+s.Name+" = "), "%s: %s", s.Name, statements)
	}
	_, err := testdb.Pool(t, url).Exec(t.Context(), statements)
	require.NoError(t, err)
	require.Empty(t, missing())
}
