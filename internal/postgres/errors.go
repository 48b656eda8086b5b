package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors that callers distinguish; all others are internal.
var (
	// ErrInvalid: an argument is not allowed.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound: what the caller named does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the change contradicts what exists.
	ErrConflict = errors.New("conflict")
	// ErrNameTaken: the name belongs to something else, or differs from another one only in letter case.
	ErrNameTaken = fmt.Errorf("the name is taken: %w", ErrConflict)
	// ErrPrecondition: a Condition of the change is false.
	ErrPrecondition = errors.New("it is not in the state that the change is for")
	// ErrPaused: the event subscription is paused.
	ErrPaused = errors.New("the event subscription is paused")
	// ErrNotValidated: the endpoint must pass a validation handshake first.
	ErrNotValidated = errors.New("the endpoint is not validated")
	// ErrResuming: the last pause is still ending.
	ErrResuming = fmt.Errorf("the last pause is still ending: %w", ErrConflict)
	// ErrUnavailable: nothing was stored, or it is unknown whether it was (the connection broke at COMMIT). Try again.
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrTooSlow: a query exceeded its time limit, and would exceed it again.
	ErrTooSlow = errors.New("took too long")
	// ErrLocked: another transaction kept a table locked.
	ErrLocked = errors.New("another transaction keeps a table locked")
	// ErrPoison: PostgreSQL rejects this data.
	ErrPoison = errors.New("the database rejects this data")
)

// SQLState is the SQLSTATE of an error that PostgreSQL reported; "" for any other error. Source: PostgreSQL's
// documentation, appendix A.
func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// class is the first two characters of the SQLSTATE, "" for an error that PostgreSQL did not report.
func class(err error) string { return SQLState(err)[:min(2, len(SQLState(err)))] }

// IsPoison reports an error that the data itself causes and that trying again cannot cure: data exception (22),
// constraint violation (23), program limit exceeded (54). A day without a partition is none: PostgreSQL reports it as
// a violated check without a name.
func IsPoison(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23514" && pgErr.ConstraintName == "" {
		return false
	}
	return slices.Contains([]string{"22", "23", "54"}, class(err))
}

// IsTransient reports a serialization failure or a deadlock: nothing was committed, and another try of the same
// transaction may succeed.
func IsTransient(err error) bool {
	state := SQLState(err)
	return state == "40001" || state == "40P01"
}

// RetryTransient calls do up to three times while PostgreSQL rolls it back for another transaction.
func RetryTransient(do func() error) error {
	var err error
	for range 3 {
		if err = do(); !IsTransient(err) {
			break
		}
	}
	return err
}

// IsLocked reports that another session kept a row or a table locked for longer than lock_timeout. Nothing was
// committed.
func IsLocked(err error) bool { return SQLState(err) == "55P03" }

// isMissingPartition reports that nodes have not created a partition yet. PostgreSQL itself raises the same code for
// what passes only if an operator changes a table, such as its replica identity.
func isMissingPartition(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "55000" && pgErr.ConstraintName == "" && pgErr.Routine == "exec_stmt_raise"
}

// isClosedDatabase reports a database that accepts no connections for now.
func isClosedDatabase(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "55000" && pgErr.SeverityUnlocalized == "FATAL"
}

// IsOutage reports an error that is expected to pass: no connection, a timeout, a lock held by another session, or a
// database that accepts no writes for now.
func IsOutage(err error) bool {
	if IsLocked(err) || SQLState(err) == "25006" || isMissingPartition(err) || isClosedDatabase(err) {
		return true
	}
	if state := class(err); state != "" {
		// 08 connection, 53 resources (disk full, too many connections), 57 shutdown, 58 system error.
		return slices.Contains([]string{"08", "53", "57", "58"}, state)
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
}

// ReadError is Outage for reading.
func ReadError(what string, err error) error { return Outage("read "+what, err) }

// Outage adds what failed, and ErrUnavailable if the same may succeed later, or a *FunctionError that is ErrInvalid if
// a value is the cause.
func Outage(doing string, err error) error {
	if IsOutage(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
	}
	if IsValueError(err) {
		return fmt.Errorf("%s: %w: %w", doing, ValueError(err), err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// IsValueError reports a value that PostgreSQL cannot store, compare or convert: the character 0, text that is no
// UTF-8, a number or time out of range (class 22), a value that is too large or nests too deep (class 54). What
// functions of ours raise is a FunctionError.
func IsValueError(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (class(err) == "22" || class(err) == "54") && pgErr.Routine != "exec_stmt_raise"
}

// FunctionError is a rejection by a function of schema postrider, or by Go code that checks the same. Its message may
// be shown to the client. It is ErrNotFound, ErrInvalid, ErrPaused, ErrNotValidated, or ErrConflict for the rest.
type FunctionError struct {
	Message string
	// Hint is what to do about it, or "".
	Hint string
	// Field is the argument that is wrong, or "".
	Field string
	// Conflict names the conflict in one word; "" for other errors.
	Conflict string
	kind     error
}

// Error returns the message.
func (e *FunctionError) Error() string { return e.Message }

// Unwrap returns the error of this package that it is.
func (e *FunctionError) Unwrap() error { return e.kind }

// NewFunctionError creates a FunctionError of a kind, such as ErrConflict.
func NewFunctionError(kind error, field, format string, args ...any) error {
	return &FunctionError{Message: fmt.Sprintf(format, args...), Field: field, kind: kind}
}

// NameFree returns a FunctionError that is ErrNameTaken if the statement finds a name that differs only in letter case
// from a new one, which is $1. args are the statement's others.
func NameFree(ctx context.Context, db Querier, kind, statement, name string, args ...any) error {
	var existing string
	err := db.QueryRow(ctx, statement, append([]any{name}, args...)...).Scan(&existing)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the name of the %s: %w", kind, err)
	}
	return NewFunctionError(ErrNameTaken, "name",
		"%s %q cannot be created: %q exists, and names must not differ only in letter case", kind, name, existing)
}

// Invalid creates a FunctionError that is ErrInvalid.
func Invalid(field, format string, args ...any) error {
	return NewFunctionError(ErrInvalid, field, format, args...)
}

// AsFunctionError converts what a function of schema postrider has raised to a FunctionError. It returns other errors
// unchanged: PostgreSQL raises the same codes, but in another routine.
func AsFunctionError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Routine != "exec_stmt_raise" {
		return err
	}
	if isMissingPartition(err) { // not caused by the caller
		return err
	}
	conflicts := map[string]error{"paused": ErrPaused, "not_validated": ErrNotValidated, "resuming": ErrResuming}
	kind, known := map[string]error{
		"P0002": ErrNotFound, "55000": cmp.Or(conflicts[pgErr.ConstraintName], ErrConflict), "22023": ErrInvalid,
	}[pgErr.Code]
	if !known {
		return err
	}
	return &FunctionError{
		Message: pgErr.Message, Hint: pgErr.Hint, Field: pgErr.ColumnName, Conflict: pgErr.ConstraintName, kind: kind,
	}
}

// CallError returns the FunctionError of a call of a function of schema postrider, or what failed.
func CallError(doing string, err error) error {
	var rejection *FunctionError
	if err = AsFunctionError(err); errors.As(err, &rejection) {
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
	if class(err) == "23" {
		return NewFunctionError(ErrConflict, pgErr.ColumnName,
			"another request has changed this at the same time; read it again, and try again")
	}
	return Invalid(pgErr.ColumnName, "the request holds a value that cannot be stored or compared: text with the "+
		"character 0 or not in UTF-8, a number or time out of range, or a value that is too large or nests too deep")
}
