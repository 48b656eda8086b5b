package operator

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
	"postrider/internal/query"
)

// Kinds of operations on what a filter matches.
const (
	Redeliver = "redeliver" // dead letters
	Repair    = "repair"    // dead letters
	Resolve   = "resolve"   // dead letters
	Purge     = "purge"     // dead letters
	Retry     = "retry"     // deliveries
	Cancel    = "cancel"    // deliveries
)

// Action is what an operation does with each dead letter or delivery that its filter matches.
type Action struct {
	Kind string
	// To and Again are of Redeliver and Repair: Again also redelivers dead letters that were redelivered before.
	To    Target
	Again bool
	// Note is of a Resolve: up to 1,000 characters.
	Note string
	// Patch of a Repair changes their events, see parsePatch. IncludeUnchanged also redelivers those that it does not
	// change.
	Patch            []byte
	IncludeUnchanged bool
	// Rate is the most per second, up to MaxRate; 0 = no limit.
	Rate int
	// Expected is the number that must match: otherwise the operation fails and changes nothing. nil = any number.
	Expected *int64
}

// MaxRate is more per second than a database can process: a larger Rate is a mistake.
const MaxRate = 1_000_000

// OnDeadLetters begins an operation on all dead letters that a filter matches now, and returns the operation's id.
// Without State in the filter it takes the open ones, except for a Purge and with Again. *FunctionError.
func (o *Operator) OnDeadLetters(
	ctx context.Context, filter *query.DeadLetterFilter, do *Action,
) (operation uuid.UUID, err error) {
	text, err := filter.Text()
	if err != nil {
		return uuid.Nil, err
	}
	var paths []string
	if do.Kind == Repair {
		patch, err := parsePatch(do.Patch)
		if err != nil {
			return uuid.Nil, err
		}
		paths = patch.paths()
	}
	const function = `SELECT postrider_internal.operate_on_dead_letters($1, $2, nullif($3::text, ''),
		nullif($4::text, ''), $5, nullif($6::int, 0), $7, $8, nullif($9::text, ''), $10, $11, $12, $13)`
	operation, err = call[uuid.UUID](ctx, o, do.Kind+" dead letters", function, do.Kind, text, do.To.Subscription,
		do.To.Topic, do.Again, do.Rate, do.Expected, do.Note, string(do.Patch), paths, do.IncludeUnchanged)
	return operation, filter.Located(err)
}

// OnDeliveries begins a Retry or a Cancel of all pending deliveries that a filter matches now, and returns the
// operation's id. *FunctionError.
func (o *Operator) OnDeliveries(
	ctx context.Context, filter *query.DeliveryFilter, do *Action,
) (operation uuid.UUID, err error) {
	if n := len(filter.DeliveryIDs); filter.DeliveryIDs != nil && (n == 0 || n > query.MaxFilterIDs) {
		const field = "filter.deliveryIds"
		return uuid.Nil, postgres.Invalid(field, "%s must have between 1 and %d ids, not %d", field, query.MaxFilterIDs, n)
	}
	text, err := filter.Text()
	if err != nil {
		return uuid.Nil, err
	}
	const function = "SELECT postrider_internal.operate_on_deliveries($1, $2, nullif($3::int, 0), $4, $5, $6)"
	return call[uuid.UUID](ctx, o, do.Kind+" deliveries", function, do.Kind, text, do.Rate, do.Expected)
}

// stepDeliveries counts, retries or cancels the next pending deliveries.
func stepDeliveries(ctx context.Context, tx pgx.Tx, op *operationRow) (step stepResult, err error) {
	var filter query.DeliveryFilter
	if err := filter.Scan(op.Filter); err != nil {
		return step, err
	}
	most := min(op.most(), eraseStep)
	if op.Counting {
		most = countStep
	}
	found, err := query.NextDeliveries(ctx, tx, filter, op.CreatedAt, op.CursorDelivery, most)
	if err != nil {
		return step, err
	}
	if !op.Counting {
		step, err = callStep(ctx, tx, "SELECT * FROM postrider_internal.step_deliveries($1, $2)", op.ID, found.IDs)
		if err != nil {
			return step, err
		}
	}
	step.Taken, step.ReachedDelivery, step.Last = len(found.IDs), &found.Reached, found.Last
	return step, nil
}

// again is the time before which a redelivery counts; nil: always.
func (op *operationRow) again() *time.Time {
	if op.Again {
		return &op.CreatedAt
	}
	return nil
}
