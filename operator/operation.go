package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/postgres"
	"postrider/query"
)

const (
	// operationStep is how many dead letters or events one transaction takes: a cancellation waits for no more.
	operationStep = 500
	// eraseStep is how many events one transaction erases: of each it cancels what is pending, one by one.
	eraseStep        = 200
	operationTimeout = 30 * time.Second
	// stepMinPause and stepMaxPause are the waits between tries of a step while the database is unavailable.
	stepMinPause = 50 * time.Millisecond
	stepMaxPause = 2 * time.Second
	// cleanOperations is how many rows one DELETE removes.
	cleanOperations = 10_000
	// operationOff is when a step is tried again that something stands in the way of.
	operationOff = 10 * time.Second
)

// operationRow is an operation as its steps see it.
type operationRow struct {
	ID                            uuid.UUID
	Kind                          string
	TargetID                      *int64
	PublishedFrom, PublishedUntil *time.Time
	RatePerSecond                 *int
	ReachedAt                     *time.Time // nil at the beginning
	ReachedID                     uuid.UUID
}

// stepped is what a step came to.
type stepped struct {
	Taken                 int
	Done, Skipped, Failed int64
	Error                 *string
	ReachedAt             pgtype.Timestamptz // -infinity where an erasure goes on with the dead letters
	ReachedID             *uuid.UUID

	ofLetters bool // an erasure goes on with the dead letters

	last    bool    // nothing is left
	failure *string // why it cannot go on
}

// Operate makes the step of an operation that this job stands for, and says after which pause the next one is due; more
// is false where none follows. The job row is the token: a step is one transaction that deletes it, redelivers or
// purges, writes down how far it came, and inserts the next step's job, which is a new row. A job that is nobody's any
// more makes nothing, and that is no error.
//
// It returns when the step is made, or with an error when ctx ends. What PostgreSQL refuses ends the operation as
// failed.
func (o *Operator) Operate(ctx context.Context, job int64) (pause time.Duration, more bool, err error) {
	for wait := stepMinPause; ; wait = min(wait*2, stepMaxPause) {
		pause, more, err = o.makeStep(ctx, job, nil)
		if postgres.IsPoison(err) || isInTheWay(err) {
			o.log.Warn("a step of an operation failed", "job", job, "error", err, "sqlstate", postgres.SQLState(err))
			pause, more, err = o.makeStep(ctx, job, err)
		}
		if err == nil {
			return pause, more, nil
		}
		o.log.Warn("a step of an operation could not be made, trying again", "job", job, "in", wait, "error", err,
			"sqlstate", postgres.SQLState(err))
		if !postgres.WaitAbout(ctx, wait) {
			return 0, false, fmt.Errorf("make a step of an operation: %w", ctx.Err())
		}
	}
}

// isInTheWay reports a refusal of ours that time may cure, such as an export that is under way.
func isInTheWay(err error) bool { return postgres.SQLState(err) == "55000" }

// reason is why a step failed, in the words of postrider: those of its own SQL functions, or one sentence for each
// class of PostgreSQL's errors. PostgreSQL's own text is in the log.
func reason(wrong error) string {
	var refused *postgres.FunctionError
	if errors.As(postgres.AsFunctionError(wrong), &refused) {
		return refused.Message // its hint is SQL
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

// makeStep makes one step. What went wrong with it ends the operation, or is written down until the step is made.
func (o *Operator) makeStep(ctx context.Context, job int64, wrong error) (pause time.Duration, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		op, err := beginStep(ctx, tx, job)
		if err != nil || op == nil {
			return err
		}
		var step stepped
		switch {
		case isInTheWay(wrong):
			step.Error = new(reason(wrong))
		case wrong != nil:
			step.failure = new("a step could not be made: " + reason(wrong))
		case op.Kind == "redeliver_events":
			step, err = o.stepEvents(ctx, tx, op)
		case op.Kind == "erase_subject":
			step, err = stepErasure(ctx, tx, op)
		default:
			step, err = stepLetters(ctx, tx, op)
		}
		if err != nil {
			return err
		}
		pause, more = op.pause(step.Taken), !step.last && step.failure == nil
		if isInTheWay(wrong) {
			pause = operationOff
		}
		return endStep(ctx, tx, op, &step, pause)
	})
	return pause, more, err
}

// pause keeps to the rate: what was taken takes its time.
func (op *operationRow) pause(taken int) time.Duration {
	if op.RatePerSecond == nil {
		return 0
	}
	return time.Duration(taken) * time.Second / time.Duration(*op.RatePerSecond)
}

// most is how many a step takes: no more than a second's worth.
func (op *operationRow) most() int {
	if op.RatePerSecond == nil {
		return operationStep
	}
	return min(operationStep, *op.RatePerSecond)
}

// beginStep takes the job; nil where it is nobody's any more, or the operation is over.
func beginStep(ctx context.Context, tx pgx.Tx, job int64) (*operationRow, error) {
	const query = `SELECT id, kind, target_id, published_from, published_until, rate_per_second,
		       nullif(cursor_at, '-infinity') AS reached_at, cursor_id AS reached_id
		FROM postrider_internal.begin_step($1)`
	rows, err := tx.Query(ctx, query, job)
	if err != nil {
		return nil, fmt.Errorf("begin a step of an operation: %w", err)
	}
	op, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByName[operationRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("begin a step of an operation: %w", err)
	}
	return op, nil
}

func endStep(ctx context.Context, tx pgx.Tx, op *operationRow, step *stepped, pause time.Duration) error {
	const call = "SELECT postrider_internal.end_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
	_, err := tx.Exec(ctx, call, op.ID, step.Done, step.Skipped, step.Failed, step.Error, step.ReachedAt, step.ReachedID,
		step.ofLetters, step.last, step.failure, pause)
	if err != nil {
		return fmt.Errorf("end a step of an operation: %w", err)
	}
	return nil
}

// stepLetters redelivers or purges the next dead letters. The step that has none to look at is the last.
func stepLetters(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepped, err error) {
	const call = "SELECT taken, done, skipped, failed, error, reached_at, reached_id, last " +
		"FROM postrider_internal.step_letters($1, $2, $3, $4)"
	row := tx.QueryRow(ctx, call, op.ID, op.most(), query.PastBytes, query.ScanStep)
	if err := row.Scan(&step.Taken, &step.Done, &step.Skipped, &step.Failed, &step.Error, &step.ReachedAt, &step.ReachedID,
		&step.last); err != nil {
		return step, fmt.Errorf("make a step over dead letters: %w", err)
	}
	return step, nil
}

// stepErasure erases the next events of a subject.
func stepErasure(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepped, err error) {
	const call = "SELECT done, reached_at, reached_id, of_letters, last FROM postrider_internal.step_erasure($1, $2, $3)"
	if err := tx.QueryRow(ctx, call, op.ID, eraseStep, query.ScanStep).
		Scan(&step.Done, &step.ReachedAt, &step.ReachedID, &step.ofLetters, &step.last); err != nil {
		return step, fmt.Errorf("make a step of an erasure: %w", err)
	}
	return step, nil
}

// CleanOperations forgets operations that were over 30 days ago.
func (o *Operator) CleanOperations(ctx context.Context) error {
	const forget = `DELETE FROM postrider_internal.operations WHERE id IN (
		SELECT id FROM postrider_internal.operations WHERE finished_at < now() - interval '30 days' LIMIT $1
		FOR UPDATE SKIP LOCKED)`
	// A redelivery that ends later than its operation is kept leaves counts of no operation.
	const forgetOutcomes = `DELETE FROM postrider_internal.operation_outcomes e
		WHERE NOT EXISTS (SELECT FROM postrider_internal.operations o WHERE o.id = e.operation_id)`
	if _, err := o.db.Exec(ctx, forget, cleanOperations); err != nil {
		return fmt.Errorf("forget operations: %w", err)
	}
	if _, err := o.db.Exec(ctx, forgetOutcomes); err != nil {
		return fmt.Errorf("forget the outcomes of operations: %w", err)
	}
	return nil
}
