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

// sessionSettings are the settings of our sessions. unset is PostgreSQL's default; "" for a setting that must not be
// the role's own.
var sessionSettings = []struct{ name, value, unset string }{
	// No plan is cached: for a table that is nearly empty most of the time (river_job), PostgreSQL keeps a sequential
	// scan, and a fetch in a burst then takes 4,992 ms instead of 11 ms.
	{planCacheMode, "force_custom_plan", ""},
	// Compiling a statement takes longer than running one of ours.
	{"jit", "off", "on"},
	// Jobs change faster than their statistics, by which there may be a single one. Then a bitmap scan with a sort seems
	// as cheap as reading the first hundred in order: it took 72 ms instead of 5.
	{"enable_bitmapscan", "off", "on"},
	{"idle_in_transaction_session_timeout", "30s", "0"},
	// Preparing a statement waits for table locks too: a table that a user has locked must not stall a node.
	{"lock_timeout", "2s", "0"},
}

// The search path of our sessions, whatever the URL has. PostgreSQL prefers a function in public whose parameters have
// the types of a call to a variadic one of its own, such as format: any login with CREATE on public could make a node
// run its function. pg_temp is last, because it would be first if it were not named.
const (
	searchPath = "search_path"
	safePath   = "pg_catalog, pg_temp"
)

const planCacheMode = "plan_cache_mode"

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
		for _, s := range sessionSettings {
			setParam(config, s.name, s.value)
		}
		config.ConnConfig.RuntimeParams[searchPath] = safePath
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
	// Every PgBouncer accepts these parameters.
	setParam(config, "application_name", "postrider")
	config.ConnConfig.RuntimeParams["standard_conforming_strings"] = "on" // our backslashes are no escapes
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

func setParam(config *pgxpool.Config, name, value string) {
	if _, set := config.ConnConfig.RuntimeParams[name]; !set {
		config.ConnConfig.RuntimeParams[name] = value
	}
}

// ThroughPgBouncer reports whether the pool was opened by OpenPoolThroughPgBouncer.
func ThroughPgBouncer(pool *pgxpool.Pool) bool {
	config := pool.Config().ConnConfig
	return config.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe && config.StatementCacheCapacity == 0
}

// SettingsDropped reports whether a pooler has dropped our settings. One that is configured to ignore them does; there,
// prepared statements would sometimes fail.
func SettingsDropped(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var value string
	// This mode prepares no statement.
	err := pool.QueryRow(ctx, "SELECT current_setting('"+planCacheMode+"')", pgx.QueryExecModeExec).Scan(&value)
	if err != nil {
		return false, fmt.Errorf("read the session's settings: %w", err)
	}
	return !strings.EqualFold(value, pool.Config().ConnConfig.RuntimeParams[planCacheMode]), nil
}

// MissingSettings is the SQL that sets for the role what our sessions cannot set through a pooler; "" if the role has
// values for all of them. Without it postrider works, but a login with CREATE on a schema of the role's search_path can
// make it run functions, and a statement waits for a forgotten lock until its own deadline (10 to 15 s) instead of 2 s.
func MissingSettings(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	// The names are qualified, because search_path may be what is missing. A list must not be quoted as one value.
	const query = `SELECT coalesce(pg_catalog.string_agg(pg_catalog.format('ALTER ROLE %I IN DATABASE %I SET %s = %s;',
		    session_user, pg_catalog.current_database(), s.name, s.value), ' '), '')
		FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]))
		    AS s(name, value, unset)
		WHERE CASE s.unset WHEN '' THEN pg_catalog.current_setting(s.name) <> s.value
		    ELSE pg_catalog.current_setting(s.name) = s.unset END`
	names, values, unset := []string{searchPath}, []string{safePath}, []string{""}
	for _, s := range sessionSettings {
		if s.unset != "" {
			names, values, unset = append(names, s.name), append(values, "'"+s.value+"'"), append(unset, s.unset)
		}
	}
	var statements string
	if err := pool.QueryRow(ctx, query, names, values, unset).Scan(&statements); err != nil {
		return "", fmt.Errorf("read the role's settings: %w", err)
	}
	return statements, nil
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
