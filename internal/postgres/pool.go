package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cachedStatements is how many statements each connection caches: several times what the engine repeats. pgx allocates
// two caches of 512 when it connects, 40 kB a connection, which the garbage collector's headroom multiplies.
const cachedStatements = 128

// shrinkCaches lowers pgx's defaults. Values in the URL stay.
func shrinkCaches(config *pgx.ConnConfig) {
	for name, capacity := range map[string]*int{
		"statement_cache_capacity":   &config.StatementCacheCapacity,
		"description_cache_capacity": &config.DescriptionCacheCapacity,
	} {
		if !strings.Contains(config.ConnString(), name) {
			*capacity = min(*capacity, cachedStatements)
		}
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // then the other cache is unused
		config.DescriptionCacheCapacity = 0
	}
}

// OpenPool connects to the database at url. maxConns 0 = pool_max_conns of the URL, or pgx's default.
func OpenPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, func(config *pgxpool.Config) {
		shrinkCaches(config.ConnConfig)
		setParams(&config.ConnConfig.Config, false)
	})
}

// OpenPoolThroughPgBouncer connects to a PgBouncer in transaction mode at url, where each transaction may have another
// session of PostgreSQL. So a session keeps nothing: no prepared statement, no setting, no LISTEN, no lock.
//
// Statements are described once per connection and then sent whole each time. So their parameters have PostgreSQL's
// types, in binary; pgx's QueryExecModeExec would guess them from Go's types, and send []byte for jsonb as bytea. A
// statement that is sent whole has no cached plan. The other settings can only be the role's own, see MissingSettings.
func OpenPoolThroughPgBouncer(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.ConnConfig.StatementCacheCapacity, config.ConnConfig.DescriptionCacheCapacity = 0, cachedStatements
		setParams(&config.ConnConfig.Config, true)
	})
}

func openPool(ctx context.Context, url string, maxConns int, configure func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	if maxConns > 0 {
		config.MaxConns = int32(maxConns)
	}
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	if config.ConnConfig.ConnectTimeout == 0 { // the URL has no connect_timeout
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if !hasParam(&config.ConnConfig.Config, "application_name") {
		setParam(&config.ConnConfig.Config, "application_name", "postrider")
	}
	config.AfterConnect = registerTypes
	configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	return pool, nil
}

// registerTypes makes pgx return times in UTC instead of the time zone of this machine, and send bodies with less
// memory.
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	times := &pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	}
	conn.TypeMap().RegisterType(times)
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: times},
	})
	registerByteas(conn.TypeMap())
	return nil
}

// ThroughPgBouncer reports whether the pool was opened by OpenPoolThroughPgBouncer.
func ThroughPgBouncer(pool *pgxpool.Pool) bool {
	config := pool.Config().ConnConfig
	return config.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe && config.StatementCacheCapacity == 0
}

// UnsafeSettings names the settings that are off although PostgreSQL may lose a reported commit without them: fsync,
// synchronous_commit and full_page_writes.
func UnsafeSettings(ctx context.Context, pool *pgxpool.Pool) (names []string, err error) {
	const query = `SELECT name FROM unnest('{fsync,full_page_writes,synchronous_commit}'::text[]) AS name
		WHERE current_setting(name) = 'off'`
	if names, err = Values[string](ctx, pool, query); err != nil {
		return nil, fmt.Errorf("read the database's durability: %w", err)
	}
	return names, nil
}
