package sqlquery

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"postrider/internal/postgres"
)

// Errors of a Runner.
var (
	// ErrBusy: all login roles are in use.
	ErrBusy = fmt.Errorf("%d queries are running; retry when one has ended", Logins)
	// ErrDeadline: the query exceeded its time limit.
	ErrDeadline = errors.New("the query exceeded its time limit")
	// ErrTooLarge: one row exceeds the size limit.
	ErrTooLarge = fmt.Errorf("a row of the result is larger than %d MiB", maxBytes>>20)
	// ErrNotConfigured: there are no login roles.
	ErrNotConfigured = errors.New("queries are not set up: " + CreateRemedy)
)

// Error is the rejection of a query, mostly PostgreSQL's. Its texts may be shown to the user.
type Error struct {
	Message string
	// Hint is what to do about it, or "".
	Hint string
	// Position is the character of the user's SQL at which the error is, from 1; 0 = unknown.
	Position int
	// State is the SQLSTATE, "" if PostgreSQL did not reject it.
	State string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns postgres.ErrInvalid.
func (e *Error) Unwrap() error { return postgres.ErrInvalid }

const onlySelect = "A query is one statement that begins with SELECT, WITH, VALUES or TABLE."

// userError converts an error of PostgreSQL. Prefix is what stood before the user's SQL.
func userError(err error, prefix string) error {
	var pgErr *pgconn.PgError
	var tooLong *pgproto3.ExceededMaxBodyLenErr
	if errors.As(err, &tooLong) {
		return ErrTooLarge
	}
	if !errors.As(err, &pgErr) {
		return postgres.Outage("run a query", err)
	}
	// What the user has not written is not in the message.
	message := pgErr.Message
	message = strings.ReplaceAll(message, "cannot insert multiple commands into a prepared statement",
		"a query has one statement")
	e := &Error{Message: strings.ReplaceAll(message, "DECLARE CURSOR", "a query"), Hint: pgErr.Hint, State: pgErr.Code}
	if pgErr.Position > int32(len(prefix)) {
		e.Position = int(pgErr.Position) - len(prefix)
	}
	if pgErr.Code == "42601" && e.Hint == "" {
		e.Hint = onlySelect
	} else if e.Hint == "" {
		e.Hint = pgErr.Detail
	}
	return e
}
