package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/postgres"
	"postrider/internal/query"
)

const (
	// operationStep is how many dead letters or events one transaction processes: a cancellation waits for it.
	operationStep = 500
	// eraseStep is how many events one transaction erases, or deliveries it retries or cancels: each delivery alone.
	eraseStep = 200
	// countStep is how many dead letters or deliveries one transaction counts.
	countStep        = query.ScanStep
	operationTimeout = 30 * time.Second
	// stepMinPause and stepMaxPause are the waits between tries of a step while the database is unavailable.
	stepMinPause = 50 * time.Millisecond
	stepMaxPause = 2 * time.Second
	// cleanOperations is how many rows one DELETE removes.
	cleanOperations = 10_000
	// blockedPause is the pause before a step that another operation or an export blocks is tried again.
	blockedPause = 10 * time.Second
)

// operationRow is what a step needs of its operation.
type operationRow struct {
	ID                            uuid.UUID
	Kind                          string
	Filter                        string
	Counting                      bool
	TargetID                      *int64
	PublishedFrom, PublishedUntil *time.Time
	RatePerSecond                 *int
	ReachedAt                     *time.Time // nil at the beginning
	ReachedID                     uuid.UUID
	CursorDelivery                int64
	CreatedAt                     time.Time
	StartedBy                     string
	// Of a repair.
	Patch                   *string
	Again, IncludeUnchanged bool
}

// stepResult is the result of a step.
type stepResult struct {
	Taken                 int
	Done, Skipped, Failed int64
	Error                 *string
	ReachedAt             pgtype.Timestamptz // -infinity if an erasure continues with the dead letters
	ReachedID             *uuid.UUID
	ReachedDelivery       *int64
	OfDeadLetters         bool    // an erasure continues with the dead letters
	Last                  bool    // nothing is left
	Failure               *string // why the operation cannot continue
}

// Operate executes the step of an operation that a job is for, and returns the pause before the next step; more is
// false if none follows. The job row is the token: a step is one transaction that deletes it, redelivers, purges or
// erases, records how far it came, and inserts the next step's job, which is a new row. A job without an operation does
// nothing, which is no error.
//
// It returns after the step was committed, or with an error when ctx ends. An error that repeating cannot cure ends the
// operation as failed.
func (o *Operator) Operate(ctx context.Context, job int64) (pause time.Duration, more bool, err error) {
	for wait := stepMinPause; ; wait = min(wait*2, stepMaxPause) {
		pause, more, err = o.runStep(ctx, job, nil)
		if postgres.IsPoison(err) || isBlocked(err) {
			o.log.Warn("a step of an operation failed", "job", job, "error", err, "sqlstate", postgres.SQLState(err))
			pause, more, err = o.runStep(ctx, job, err)
		}
		if err == nil {
			return pause, more, nil
		}
		o.log.Warn("a step of an operation failed, trying again", "job", job, "in", wait, "error", err,
			"sqlstate", postgres.SQLState(err))
		if !postgres.WaitJittered(ctx, wait) {
			return 0, false, fmt.Errorf("execute a step of an operation: %w", ctx.Err())
		}
	}
}

// isBlocked reports an error of postrider's SQL functions that may end by itself, such as an export in progress.
func isBlocked(err error) bool { return postgres.SQLState(err) == "55000" }

// reason returns why a step failed: the message of postrider's SQL functions, or one sentence for each class of
// PostgreSQL's errors. PostgreSQL's message is in the log.
func reason(wrong error) string {
	if rejection, ok := errors.AsType[*postgres.FunctionError](postgres.AsFunctionError(wrong)); ok {
		return rejection.Message // its hint is SQL
	}
	const seeLog = "; the log of the node has the cause"
	state := postgres.SQLState(wrong)
	switch {
	case state == "":
		return "the step failed" + seeLog
	case state[:2] == "23":
		return "the database rejected a change because it contradicts other stored data" + seeLog
	case state[:2] == "54":
		return "the database rejected a change because it exceeds a limit of the database" + seeLog
	default:
		return "the database rejected a change" + seeLog
	}
}

// runStep executes one step. wrong is the error of the last try: it ends the operation, or is recorded if the step is
// blocked.
func (o *Operator) runStep(ctx context.Context, job int64, wrong error) (pause time.Duration, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	var op *operationRow
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		op, err = beginStep(ctx, tx, job)
		if err != nil || op == nil {
			return err
		}
		var step stepResult
		switch {
		case isBlocked(wrong):
			step.Error = new(reason(wrong))
		case wrong != nil:
			step.Failure = new("a step failed: " + reason(wrong))
		default:
			step, err = o.step(ctx, tx, op)
		}
		if err != nil {
			return err
		}
		if isBlocked(wrong) {
			pause = blockedPause
		}
		pause, more, err = endStep(ctx, tx, op, &step, pause)
		return err
	})
	if err == nil && op != nil && op.Kind == Retry {
		o.requestFetch()
	}
	return pause, more, err
}

// step executes one step by its kind.
func (o *Operator) step(ctx context.Context, tx pgx.Tx, op *operationRow) (stepResult, error) {
	switch {
	case op.Kind == "redeliver_events":
		return o.stepEvents(ctx, tx, op)
	case op.Kind == "erase_subject":
		const call = "SELECT * FROM postrider_internal.step_erasure($1, $2, $3)"
		return callStep(ctx, tx, call, op.ID, eraseStep, query.ScanStep)
	case op.Kind == Retry || op.Kind == Cancel:
		return stepDeliveries(ctx, tx, op)
	case op.Counting:
		return callStep(ctx, tx, "SELECT * FROM postrider_internal.count_step($1, $2)", op.ID, countStep)
	case op.Kind == Repair:
		return o.stepRepair(ctx, tx, op)
	default:
		const call = "SELECT * FROM postrider_internal.step_dead_letters($1, $2, $3, $4)"
		return callStep(ctx, tx, call, op.ID, op.most(), query.PastBytes, query.ScanStep)
	}
}

// most is up to how many a step processes: those of a second at the operation's rate.
func (op *operationRow) most() int {
	if op.RatePerSecond == nil {
		return operationStep
	}
	return min(operationStep, *op.RatePerSecond)
}

// beginStep deletes the job and locks its operation; nil if the job was replaced or the operation has ended.
func beginStep(ctx context.Context, tx pgx.Tx, job int64) (*operationRow, error) {
	const begin = `SELECT id, kind, filter::text, counting, target_id, published_from, published_until, rate_per_second,
		       nullif(cursor_at, '-infinity') AS reached_at, cursor_id AS reached_id,
		       cursor_delivery, created_at, started_by, patch, again, include_unchanged
		FROM postrider_internal.begin_step($1)`
	op, err := postgres.Row[operationRow](ctx, tx, begin, job)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("begin a step of an operation: %w", err)
	}
	return op, nil
}

// endStep returns the pause before the next step: at least the given one, longer at the operation's rate. more is false
// if none follows.
func endStep(
	ctx context.Context, tx pgx.Tx, op *operationRow, step *stepResult, least time.Duration,
) (pause time.Duration, more bool, err error) {
	const call = "SELECT postrider_internal.end_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
	var next *time.Duration
	row := tx.QueryRow(ctx, call, op.ID, step.Done, step.Skipped, step.Failed, step.Error, step.ReachedAt, step.ReachedID,
		step.ReachedDelivery, step.OfDeadLetters, step.Last, step.Failure, step.Taken, least)
	if err = row.Scan(&next); err != nil {
		return 0, false, fmt.Errorf("end a step of an operation: %w", err)
	}
	if next == nil {
		return 0, false, nil
	}
	return *next, true, nil
}

// callStep calls an SQL function that returns some columns of a stepResult.
func callStep(ctx context.Context, tx pgx.Tx, call string, args ...any) (stepResult, error) {
	rows, _ := tx.Query(ctx, call, args...) // CollectOneRow returns its error
	step, err := pgx.CollectOneRow(rows, pgx.RowToStructByNameLax[stepResult])
	if err != nil {
		return step, fmt.Errorf("execute a step: %w", err)
	}
	return step, nil
}

// CleanOperations deletes operations that ended 30 days ago.
func (o *Operator) CleanOperations(ctx context.Context) error {
	const ended = `DELETE FROM postrider_internal.operations WHERE id IN (
		SELECT id FROM postrider_internal.operations WHERE finished_at < now() - interval '30 days' LIMIT $1
		FOR UPDATE SKIP LOCKED)`
	// A redelivery that ends after its operation was deleted leaves counts without an operation.
	const outcomes = `DELETE FROM postrider_internal.operation_outcomes e
		WHERE NOT EXISTS (SELECT FROM postrider_internal.operations o WHERE o.id = e.operation_id)`
	return errors.Join(postgres.Exec(ctx, o.db, "delete operations", ended, cleanOperations),
		postgres.Exec(ctx, o.db, "delete the outcomes of operations", outcomes))
}
