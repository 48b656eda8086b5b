package store

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrInvalid says that an argument cannot be used.
var ErrInvalid = errors.New("invalid argument")

// FunctionError is what a function of schema postrider, or Access, refuses to do. Its words may be shown to whoever asked. It is ErrNotFound, ErrInvalid,
// ErrPaused, ErrNotValidated, or ErrConflict for all else that is in the way.
type FunctionError struct {
	Message string
	// Hint says what to do about it; "" where there is nothing to say.
	Hint string
	// Field is the argument that is wrong, "" for none.
	Field string
	// Conflict is what is in the way, in one word; "" where it is no conflict, or one that has its own error.
	Conflict string
	kind     error
}

// Error is what was refused, and why.
func (e *FunctionError) Error() string { return e.Message }

// Unwrap returns which of the errors above it is.
func (e *FunctionError) Unwrap() error { return e.kind }

// errResuming: an event subscription cannot be paused until its last pause has ended.
var errResuming = fmt.Errorf("the last pause is still ending: %w", ErrConflict)

// inTheWay are the conflicts that callers tell apart: the functions name them as a constraint.
var inTheWay = map[string]error{"paused": ErrPaused, "not_validated": ErrNotValidated, "resuming": errResuming}

// functionError makes a FunctionError of what a function of ours has raised; any other error stays as it is. PostgreSQL's own errors of the same
// codes come from elsewhere in its code.
func functionError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Routine != "exec_stmt_raise" {
		return err
	}
	if pgErr.Code == "55000" && pgErr.ConstraintName == "" { // no caller's mistake, such as a missing partition
		return err
	}
	kinds := map[string]error{"P0002": ErrNotFound, "55000": cmp.Or(inTheWay[pgErr.ConstraintName], ErrConflict), "22023": ErrInvalid}
	if kind, known := kinds[pgErr.Code]; known {
		return &FunctionError{Message: pgErr.Message, Hint: pgErr.Hint, Field: pgErr.ColumnName, Conflict: pgErr.ConstraintName, kind: kind}
	}
	return err
}

// failed tells what a function of ours refuses from what went wrong while it was called.
func failed(doing string, err error) error {
	var refusal *FunctionError
	if err = functionError(err); errors.As(err, &refusal) {
		return err
	}
	return outage(doing, err)
}
