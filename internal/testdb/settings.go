package testdb

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// UnusualSettings differ from PostgreSQL's defaults and from ours. The owner of a database may set them.
var UnusualSettings = map[string]string{
	"client_encoding": "LATIN1", "standard_conforming_strings": "off", "backslash_quote": "off",
	"datestyle": "German, DMY", "timezone": "Asia/Kathmandu", "intervalstyle": "iso_8601", "bytea_output": "escape",
	"extra_float_digits": "-10", "xmloption": "document", "array_nulls": "off", "quote_all_identifiers": "on",
	"transform_null_equals": "on", "search_path": "nowhere", "row_security": "off", "check_function_bodies": "off",
	"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on", "exit_on_error": "on",
	"plpgsql.extra_errors": "all", "plpgsql.extra_warnings": "all", "plpgsql.variable_conflict": "use_variable",
	"default_toast_compression": "pglz", "statement_timeout": "61s", "idle_session_timeout": "62s",
	"idle_in_transaction_session_timeout": "63s", "lock_timeout": "64s", "plan_cache_mode": "force_generic_plan",
	"jit": "on",
}

// SetUnusual gives the database at url these settings, for sessions that begin afterwards.
func SetUnusual(tb testing.TB, url string, settings map[string]string) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatalf("testdb: connect to set the database's settings: %v", err)
	}
	defer conn.Close(tb.Context())
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	for name, value := range settings {
		literal := "'" + strings.ReplaceAll(value, "'", "''") + "'"
		if _, err := conn.Exec(tb.Context(), "ALTER DATABASE "+database+" SET "+name+" = "+literal); err != nil {
			tb.Fatalf("testdb: set %s of the database: %v", name, err)
		}
	}
}
