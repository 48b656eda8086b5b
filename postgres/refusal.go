package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// FunctionError is a rejection by a function of schema postrider, or by Go code that checks the same. Its message may
// be shown to the client. It is ErrNotFound, ErrInvalid, ErrPaused, ErrNotValidated, or ErrConflict for the rest.
type FunctionError struct {
	Message string
	// Hint is what to do about it, or "".
	Hint string
	// Field is the argument that is wrong, or "".
	Field string
	// Conflict names the conflict in one word. It is "" for other errors and for conflicts with an own error.
	Conflict string
	kind     error
}

// Error returns the message.
func (e *FunctionError) Error() string { return e.Message }

// Unwrap returns the error of this package that it is.
func (e *FunctionError) Unwrap() error { return e.kind }

// NewFunctionError creates a FunctionError of a kind, such as ErrInvalid.
func NewFunctionError(kind error, field, format string, args ...any) error {
	return &FunctionError{Message: fmt.Sprintf(format, args...), Field: field, kind: kind}
}

// Conflicts with an own error. Functions of schema postrider name them as a constraint.
var (
	// ErrPaused: the event subscription is paused.
	ErrPaused = errors.New("the event subscription is paused")
	// ErrNotValidated: the endpoint must pass a validation handshake first.
	ErrNotValidated = errors.New("the endpoint is not validated")
	// ErrResuming: the last pause is still ending.
	ErrResuming = fmt.Errorf("the last pause is still ending: %w", ErrConflict)
)

var conflicts = map[string]error{"paused": ErrPaused, "not_validated": ErrNotValidated, "resuming": ErrResuming}

// AsFunctionError converts what a function of schema postrider has raised to a FunctionError. It returns other errors
// unchanged: PostgreSQL raises the same codes, but in another routine.
func AsFunctionError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Routine != "exec_stmt_raise" {
		return err
	}
	if pgErr.Code == "55000" && pgErr.ConstraintName == "" { // not the caller's mistake, such as a missing partition
		return err
	}
	kinds := map[string]error{
		"P0002": ErrNotFound, "55000": cmp.Or(conflicts[pgErr.ConstraintName], ErrConflict), "22023": ErrInvalid,
	}
	if kind, known := kinds[pgErr.Code]; known {
		return &FunctionError{
			Message: pgErr.Message, Hint: pgErr.Hint, Field: pgErr.ColumnName, Conflict: pgErr.ConstraintName, kind: kind,
		}
	}
	return err
}

// CallError returns the FunctionError of a call of a function of schema postrider, or what failed.
func CallError(doing string, err error) error {
	var refusal *FunctionError
	if err = AsFunctionError(err); errors.As(err, &refusal) {
		return err
	}
	return Outage(doing, err)
}

// ValueError is the plain error of a change that PostgreSQL rejects because of its values: another try is rejected as
// well. The log has PostgreSQL's error.
func ValueError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	if strings.HasPrefix(pgErr.Code, "23") {
		return NewFunctionError(ErrConflict, pgErr.ColumnName,
			"another request has changed this at the same time; read it again, and try again")
	}
	return NewFunctionError(ErrInvalid, pgErr.ColumnName, "the request holds a value that cannot be stored")
}
