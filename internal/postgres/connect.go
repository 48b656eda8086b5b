package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// IsRejected reports a connection that fails again until an operator changes the server or the URL: wrong password,
// missing database, rejected by pg_hba.conf, unknown certificate. A server that starts or has no free connection is
// none.
func IsRejected(err error) bool {
	switch class(err) {
	case "28", "3D", "42", "22", "0A": // authorization, no such database, no right, wrong parameters
		return true
	case "08":
		return SQLState(err) == "08P01" // protocol violation: a pooler rejects a parameter
	}
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError // the server rejects our certificate
	return errors.As(err, &verification) || errors.As(err, &unknown) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &alert)
}

// ConnectError adds to the error of a connection what failed, at which address and what to check. pgx repeats the same
// failure for every way that it tries, with and without TLS. If the failures differ, it returns pgx's text. It wraps
// err.
func ConnectError(err error) error {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return fmt.Errorf("connect to the database: %w", err)
	}
	failures := strings.Split(strings.TrimPrefix(failed.Unwrap().Error(), "hostname resolving error: "), "\n")
	if len(slices.Compact(failures)) > 1 {
		return fmt.Errorf("connect to the database: %w", err)
	}
	at := net.JoinHostPort(failed.Config.Host, strconv.Itoa(int(failed.Config.Port)))
	var response *pgconn.PgError
	var system syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &response):
		return &connectionError{fmt.Sprintf("connect to the database: PostgreSQL at %s responded: %s (SQLSTATE %s)", at,
			response.Message, response.Code), err}
	case errors.As(err, &name):
		return &connectionError{fmt.Sprintf("connect to the database: host %s could not be resolved: %s; check the "+
			"database URL", failed.Config.Host, name.Err), err}
	case errors.As(err, &system):
		return &connectionError{fmt.Sprintf("connect to the database: no connection to %s: %v; check that PostgreSQL runs "+
			"there, and the database URL", at, system), err}
	}
	return fmt.Errorf("connect to the database: %w", err)
}

// connectionError has plain words for the error that it wraps.
type connectionError struct {
	text string
	err  error
}

func (e *connectionError) Error() string { return e.text }

func (e *connectionError) Unwrap() error { return e.err }

// ReadOnlyError is why a database accepts no writes.
type ReadOnlyError struct{ Cause, Remedy string }

// Error returns the cause and the remedy.
func (e *ReadOnlyError) Error() string {
	return "the database accepts no writes: " + e.Cause + "; " + e.Remedy
}

// newReadOnlyError explains a standby, or a session in which default_transaction_read_only is on. source is where that
// is set, as pg_settings has it.
func newReadOnlyError(standby bool, source, role, database string) *ReadOnlyError {
	const setting = "default_transaction_read_only"
	if standby {
		return &ReadOnlyError{
			"the server is a standby",
			"set POSTRIDER_DATABASE_URL to the primary (with several hosts, target_session_attrs=read-write finds it)",
		}
	}
	role, database = pgx.Identifier{role}.Sanitize(), pgx.Identifier{database}.Sanitize()
	remedy := map[string]string{
		"client":        "remove it from POSTRIDER_DATABASE_URL and PGOPTIONS",
		"user":          fmt.Sprintf("run: ALTER ROLE %s RESET %s", role, setting),
		"database user": fmt.Sprintf("run: ALTER ROLE %s IN DATABASE %s RESET %s", role, database, setting),
		"database":      fmt.Sprintf("run: ALTER DATABASE %s RESET %s", database, setting),
		"global":        fmt.Sprintf("run: ALTER ROLE ALL RESET %s", setting),
	}[source]
	if remedy == "" { // the server's configuration, which a setting of the database replaces
		remedy = fmt.Sprintf("run: ALTER DATABASE %s SET %s = off", database, setting)
	}
	return &ReadOnlyError{setting + " is on", remedy + " (a provider may have set it because the disk is full)"}
}

// CheckWritable returns a *ReadOnlyError if the database accepts no writes.
func CheckWritable(ctx context.Context, db Querier) error {
	const query = `SELECT pg_is_in_recovery(), setting, source, session_user::text, current_database()::text
		FROM pg_settings WHERE name = 'default_transaction_read_only'`
	var standby bool
	var setting, source, role, database string
	if err := db.QueryRow(ctx, query).Scan(&standby, &setting, &source, &role, &database); err != nil {
		return fmt.Errorf("check whether the database accepts writes: %w", err)
	}
	if standby || setting == "on" {
		return newReadOnlyError(standby, source, role, database)
	}
	return nil
}
