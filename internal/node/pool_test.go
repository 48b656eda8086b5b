package node_test

import (
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
