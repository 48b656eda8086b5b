package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors that callers tell apart; everything else is internal.
var (
	// ErrInvalid: an argument is not allowed.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound: what the caller named does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the change contradicts what exists.
	ErrConflict = errors.New("conflict")
	// ErrNameTaken: the name belongs to something else, or differs from another one only in letter case.
	ErrNameTaken = fmt.Errorf("the name is taken: %w", ErrConflict)
	// ErrPrecondition: a Condition of the change does not hold.
	ErrPrecondition = errors.New("it is not in the state that the change is for")
	// ErrUnavailable: nothing was stored, or it is unknown whether it was (the connection broke at COMMIT). Try again.
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrTooSlow: a query exceeded its time limit, and would exceed it again.
	ErrTooSlow = errors.New("took too long")
	// ErrPoison: PostgreSQL rejects this data.
	ErrPoison = errors.New("the database refuses this data")
)

// SQLState is the SQLSTATE of an error that PostgreSQL reported, for the log; "" for any other error.
// PostgreSQL's documentation lists their classes in appendix A.
func SQLState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// QueryCanceled is the SQLSTATE of a statement that met its timeout.
const QueryCanceled = "57014"

// IsPoison reports an error that the data itself causes and that trying again cannot cure: data exception (22),
// constraint violation (23), program limit exceeded (54).
func IsPoison(err error) bool {
	state := SQLState(err)
	if len(state) < 2 || isMissingPartition(err) {
		return false
	}
	class := state[:2]
	return class == "22" || class == "23" || class == "54"
}

// isMissingPartition reports that the day has no partition. PostgreSQL calls it a violated check without a name; it is
// nobody's data that is wrong.
func isMissingPartition(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "23514" && pgErr.ConstraintName == ""
}

// IsTransient reports an error of which PostgreSQL itself says that the same transaction may succeed when it is run
// again: serialisation failure and deadlock. Nothing was committed.
func IsTransient(err error) bool {
	state := SQLState(err)
	return state == "40001" || state == "40P01"
}

// transientTries is how often retryTransient calls a statement.
const transientTries = 3

// RetryTransient repeats a statement that PostgreSQL itself rolled back so that another one could finish.
func RetryTransient(do func() error) (err error) {
	for range transientTries {
		if err = do(); !IsTransient(err) {
			break
		}
	}
	return err
}

// IsLocked reports that another session kept a row or a table locked for longer than lock_timeout. Nothing was
// committed.
func IsLocked(err error) bool { return SQLState(err) == "55P03" }

// IsOutage reports an error that is expected to pass: no connection, a timeout, or a lock held by another session.
func IsOutage(err error) bool {
	var netErr net.Error
	switch state := SQLState(err); {
	case len(state) >= 2:
		class := state[:2]
		// 08 connection, 53 resources (disk full, too many connections), 55 lock timeout, 57 shutdown, 58 system error.
		return class == "08" || class == "53" || class == "55" || class == "57" || class == "58"
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return true
	default:
		return errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
	}
}

// ReadError is outage for reading.
func ReadError(what string, err error) error { return Outage("read "+what, err) }

// Outage adds what failed, and ErrUnavailable if the same may succeed later.
func Outage(doing string, err error) error {
	if IsOutage(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
