package postgres

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Setting is a setting of PostgreSQL that our sessions have, whatever the server, the database and the role have.
type Setting struct {
	Name, Value string
	// Reason is what another value changes.
	Reason string
	// Users: sessions that run the SQL of users have it too.
	Users bool
	// Tunable: a value in the URL stays. Through a pooler, so does a value that the role has.
	Tunable bool
	// Pooled: every PgBouncer keeps it for each client.
	Pooled bool
	// since is the first major version that knows it; 0 = all.
	since int
}

const (
	clientEncoding = "client_encoding"
	planCacheMode  = "plan_cache_mode"
	searchPath     = "search_path"
)

// Settings are those of the sessions of nodes, migrations, doctor and commands. default_transaction_read_only is not
// among them: an administrator sets it to prevent writes, see CheckWritable.
var Settings = []Setting{
	{
		Name: clientEncoding, Value: "UTF8", Users: true, Pooled: true,
		Reason: "texts are sent and read as UTF-8; with another encoding they are stored garbled",
	},
	{
		Name: "standard_conforming_strings", Value: "on", Users: true, Pooled: true,
		Reason: "a backslash in a literal is a character, not an escape",
	},
	{
		Name: "DateStyle", Value: "ISO, MDY", Users: true, Pooled: true,
		Reason: "times are read and shown in ISO 8601",
	},
	{
		Name: "TimeZone", Value: "UTC", Users: true, Pooled: true,
		Reason: "times are shown in UTC, and days are UTC days",
	},
	{Name: "IntervalStyle", Value: "postgres", Users: true, Reason: "durations have one format"},
	{Name: "bytea_output", Value: "hex", Users: true, Reason: "binary values have the format that pgx reads"},
	{Name: "extra_float_digits", Value: "1", Users: true, Reason: "floating-point numbers keep all digits"},
	{Name: "array_nulls", Value: "on", Reason: "NULL in an array is no text"},
	{Name: "quote_all_identifiers", Value: "off", Reason: "names of tables are compared as texts"},
	{
		// PostgreSQL prefers a function in public whose parameters have the types of a call to a variadic one of its own,
		// such as format. pg_temp is last, because it would be first if it were not named.
		Name: searchPath, Value: "pg_catalog, pg_temp", Users: true,
		Reason: "no login with CREATE on a schema of the path makes a node run its function",
	},
	{
		Name: "default_transaction_isolation", Value: "read committed",
		Reason: "statements see what others have committed meanwhile, and do not fail because of it",
	},
	{Name: "default_table_access_method", Value: "heap", Reason: "the tables' rows are locked, updated and deleted"},
	{Name: "exit_on_error", Value: "off", Reason: "an error ends a statement, not the session"},
	{Name: "plpgsql.extra_errors", Value: "none", Reason: "warnings about functions do not end a migration"},
	{Name: "plpgsql.extra_warnings", Value: "none", Reason: "functions fill no log with warnings"},
	{
		Name: "statement_timeout", Value: "0", Tunable: true,
		Reason: "nodes bound their statements themselves; migrations and purges take long",
	},
	{Name: "transaction_timeout", Value: "0", Tunable: true, since: 17, Reason: "as statement_timeout"},
	{
		Name: "idle_session_timeout", Value: "0", Tunable: true,
		Reason: "a session that waits for notifications is not cut",
	},
	{
		Name: "idle_in_transaction_session_timeout", Value: "30s", Tunable: true,
		Reason: "a node that hangs keeps no locks",
	},
	{
		Name: "lock_timeout", Value: "2s", Tunable: true, Users: true,
		Reason: "a table or row that a user has locked does not stall a node; preparing a statement waits, too",
	},
	{
		Name: planCacheMode, Value: "force_custom_plan", Tunable: true,
		Reason: "a plan kept for an empty job table reads the whole full one: a fetch took 4,992 ms instead of 11 ms",
	},
	{
		Name: "jit", Value: "off", Tunable: true, Users: true,
		Reason: "compiling a statement takes longer than running it",
	},
	{
		// Jobs change faster than their statistics, by which there may be a single one. Then a bitmap scan with a sort seems
		// as cheap as reading the first hundred in order.
		Name: "enable_bitmapscan", Value: "off", Tunable: true,
		Reason: "jobs are read in the order of an index: a fetch took 72 ms instead of 5 ms",
	},
}

// setParams gives a connection the settings of nodes. A setting of the URL stays if it is tunable.
func setParams(config *pgconn.Config, pooled bool) {
	for _, s := range Settings {
		switch {
		case pooled && !s.Pooled, s.Tunable && hasParam(config, s.Name):
		case s.since > 0: // older versions would reject the connection
			config.AfterConnect = setSince(s, config.AfterConnect)
		default:
			setParam(config, s.Name, s.Value)
		}
	}
}

// setSince sets a setting that only newer versions know.
func setSince(s Setting, before pgconn.AfterConnectFunc) pgconn.AfterConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		var version int
		if _, err := fmt.Sscan(conn.ParameterStatus("server_version"), &version); err != nil || version < s.since {
			return nil //nolint:nilerr // a pooler that sends another text keeps its own settings
		}
		_, err := conn.Exec(ctx, fmt.Sprintf("SET %s = '%s'", s.Name, s.Value)).ReadAll()
		return err
	}
}

// hasParam reports whether the URL has a setting. PostgreSQL ignores the case of its name.
func hasParam(config *pgconn.Config, name string) bool {
	for known := range config.RuntimeParams {
		if strings.EqualFold(known, name) {
			return true
		}
	}
	return false
}

func setParam(config *pgconn.Config, name, value string) {
	maps.DeleteFunc(config.RuntimeParams, func(known, _ string) bool { return strings.EqualFold(known, name) })
	config.RuntimeParams[name] = value
}

// SetEncoding makes a connection use UTF-8: pgx and PostgreSQL agree on that when they connect.
func SetEncoding(config *pgconn.Config) { setParam(config, clientEncoding, "UTF8") }

// LocalSettings is the statement that sets what the SQL of users depends on until the transaction ends. It also works
// through a pooler. SetEncoding does the rest.
func LocalSettings() string {
	var calls []string
	for _, s := range Settings {
		if s.Users && s.Name != clientEncoding {
			calls = append(calls, fmt.Sprintf("pg_catalog.set_config('%s', '%s', true)", s.Name, s.Value))
		}
	}
	return "SELECT " + strings.Join(calls, ", ")
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

// MissingSettings is the SQL that sets for the role what our sessions cannot set through a pooler; "" if they have all
// of it. Without it postrider works, but a login with CREATE on a schema of the role's search_path can make it run
// functions, and a statement waits for a forgotten lock until its own deadline (10 to 15 s) instead of 2 s.
func MissingSettings(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	// The names are qualified, because search_path may be what is missing. A list must not be quoted as one value. A
	// setting that this version does not know is NULL.
	const query = `SELECT coalesce(pg_catalog.string_agg(pg_catalog.format('ALTER ROLE %I IN DATABASE %I SET %s = %s;',
		    session_user, pg_catalog.current_database(), s.name,
		    CASE s.name WHEN 'search_path' THEN s.value ELSE pg_catalog.quote_literal(s.value) END), ' '), '')
		FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::boolean[]))
		    AS s(name, value, tunable)
		LEFT JOIN pg_catalog.pg_settings p ON p.name = s.name
		WHERE CASE WHEN s.tunable AND p.boot_val <> s.value THEN p.setting = p.boot_val
		    ELSE pg_catalog.current_setting(s.name, true) <> s.value END`
	var names, values []string
	var tunable []bool
	for _, s := range Settings {
		if !s.Pooled && s.Name != planCacheMode { // a statement that is sent whole has no cached plan
			names, values, tunable = append(names, s.Name), append(values, s.Value), append(tunable, s.Tunable)
		}
	}
	var statements string
	if err := pool.QueryRow(ctx, query, names, values, tunable).Scan(&statements); err != nil {
		return "", fmt.Errorf("read the role's settings: %w", err)
	}
	return statements, nil
}
