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

// sessionSettings are what our sessions want of PostgreSQL. unset is what PostgreSQL shows where nobody has set it; ""
// where only our own sessions may want it.
var sessionSettings = []struct{ name, value, unset string }{
	// Plans are never cached: on a table that is nearly empty most of the time (river_job), PostgreSQL settles on a
	// sequential scan for good, and a burst then takes 4,992 ms a fetch instead of 11 ms.
	{planCacheMode, "force_custom_plan", ""},
	// Compiling a statement takes longer than running any of ours.
	{"jit", "off", "on"},
	// While jobs come and go faster than statistics, PostgreSQL believes that there is one: reading all that can be
	// fetched by a bitmap and sorting it then looks as cheap as reading the first hundred in order, and took 72 ms instead
	// of 5.
	{"enable_bitmapscan", "off", "on"},
	{"idle_in_transaction_session_timeout", "30s", "0"},
	// Preparing a statement waits for table locks too: a table that somebody locked must cost 2 s and an error, not a
	// node.
	{"lock_timeout", "2s", "0"},
}

const planCacheMode = "plan_cache_mode"

// cachedStatements is how many statements each connection remembers: several times what the engine repeats. pgx makes
// room for two times pgxStatements when it connects, 40 kB a connection, which the collector's headroom multiplies.
const (
	cachedStatements = 128
	pgxStatements    = 512
)

// rememberLess lowers what pgx remembers by default. What the URL says of it stays, the mode too.
func rememberLess(config *pgx.ConnConfig) {
	for name, capacity := range map[string]*int{
		"statement_cache_capacity":   &config.StatementCacheCapacity,
		"description_cache_capacity": &config.DescriptionCacheCapacity,
	} {
		if *capacity == pgxStatements && !strings.Contains(config.ConnString(), name) {
			*capacity = cachedStatements
		}
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // nobody asks for the other one
		config.DescriptionCacheCapacity = 0
	}
}

// OpenPool connects to the database at url. maxConns 0 takes pgx's default unless the URL says pool_max_conns.
func OpenPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, func(config *pgxpool.Config) {
		rememberLess(config.ConnConfig)
		for _, s := range sessionSettings {
			setParam(config, s.name, s.value)
		}
	})
}

// OpenPoolThroughPgBouncer connects to a PgBouncer in transaction mode at url, where each transaction may meet another
// session of PostgreSQL. So nothing may live in a session: no prepared statement, no setting, no LISTEN, no lock.
//
// Statements are described once per connection and then sent whole each time. Their parameters so keep the types that
// PostgreSQL names, in binary; pgx's QueryExecModeExec would guess them from Go's types, and []byte meant for jsonb,
// such as an event subscription's filter, would arrive as bytea. A statement that is sent whole is planned for its own
// values: there is no cached plan to forbid. The other settings can only be the role's own, see MissingSettings.
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
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	setParam(config, "application_name", "postrider") // the one parameter that every PgBouncer takes
	config.AfterConnect = readUTC
	configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	return pool, nil
}

// readUTC makes pgx return times in UTC instead of the time zone of this machine: they are shown as they were read.
func readUTC(_ context.Context, conn *pgx.Conn) error {
	times := &pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	}
	conn.TypeMap().RegisterType(times)
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: times},
	})
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

// SettingsDropped reports whether somebody between us and PostgreSQL took our settings away. A pooler does so that is
// told to ignore what it cannot keep; prepared statements would fail there, now and then.
func SettingsDropped(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var value string
	// Asked without preparing a statement.
	err := pool.QueryRow(ctx, "SELECT current_setting('"+planCacheMode+"')", pgx.QueryExecModeExec).Scan(&value)
	if err != nil {
		return false, fmt.Errorf("read the session's settings: %w", err)
	}
	return !strings.EqualFold(value, pool.Config().ConnConfig.RuntimeParams[planCacheMode]), nil
}

// MissingSettings is the SQL that gives the role what a pooler keeps our sessions from setting; "" where the role has
// it, with whatever values. Without it postrider works, but a statement that meets somebody's forgotten lock waits for
// as long as its own deadline (10 to 15 s) instead of 2 s.
func MissingSettings(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	const query = `SELECT coalesce(string_agg(format('ALTER ROLE %I IN DATABASE %I SET %s = %L;', session_user,
		    current_database(), name, wanted), ' '), '')
		FROM unnest($1::text[], $2::text[], $3::text[]) AS s(name, wanted, unset) WHERE current_setting(name) = unset`
	var names, wanted, unset []string
	for _, s := range sessionSettings {
		if s.unset != "" {
			names, wanted, unset = append(names, s.name), append(wanted, s.value), append(unset, s.unset)
		}
	}
	var statements string
	if err := pool.QueryRow(ctx, query, names, wanted, unset).Scan(&statements); err != nil {
		return "", fmt.Errorf("read the role's settings: %w", err)
	}
	return statements, nil
}

// UnsafeSettings names the settings with which PostgreSQL may forget a commit that it has answered: fsync,
// synchronous_commit and full_page_writes, where they are off.
func UnsafeSettings(ctx context.Context, pool *pgxpool.Pool) (names []string, err error) {
	rows, _ := pool.Query(ctx, `SELECT name FROM unnest('{fsync,full_page_writes,synchronous_commit}'::text[]) AS name
		WHERE current_setting(name) = 'off'`)
	if names, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, fmt.Errorf("read the database's durability: %w", err)
	}
	return names, nil
}
