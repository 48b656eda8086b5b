package operator

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/access"
	"postrider/postgres"
	"postrider/query"
)

// Selection is a frozen list of dead letters or deliveries, for a day. Only its creator or an administrator can use it.
type Selection struct {
	ID        uuid.UUID `json:"selectionId"`
	Kind      string    `json:"kind" enum:"dead_letters,deliveries"`
	Count     int       `json:"count"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Kinds of selections.
const (
	SelectedDeadLetters = "dead_letters"
	SelectedDeliveries  = "deliveries"
)

// Kinds of operations on selections.
const (
	Redeliver = "redeliver" // dead letters
	Purge     = "purge"     // dead letters
	Retry     = "retry"     // deliveries
	Cancel    = "cancel"    // deliveries
)

// Action is what an operation does with each item of a selection.
type Action struct {
	Kind string
	// To and Again are of Redeliver: Again also redelivers dead letters that were redelivered before.
	To    Target
	Again bool
	// Rate is the most per second; 0 = no limit.
	Rate int
}

const (
	// MaxSelected is the most items of a selection.
	MaxSelected = 1_000_000
	// cleanItems is how many items one transaction removes.
	cleanItems = 20_000
)

// Sources of a selection, for the audit.
const (
	fromIDs   = "ids"
	fromQuery = "query"
)

const (
	addSelection  = "SELECT * FROM postrider_internal.add_selection($1, $2, $3, $4, $5, $6)"
	findSelection = "SELECT * FROM postrider_internal.find_selection($1, $2, $3)"
	selectFilter  = "SELECT * FROM postrider_internal.select_dead_letters($1, $2, $3)"
)

// SelectFilter freezes the dead letters that a filter matches now. *FunctionError: more than MaxSelected, or the filter
// is invalid.
func (o *Operator) SelectFilter(ctx context.Context, filter *query.DeadLetterFilter) (*Selection, error) {
	text, err := filter.Text()
	if err != nil {
		return nil, err
	}
	actor := access.ActorOf(ctx)
	s, err := postgres.Row[Selection](ctx, o.db, selectFilter, text, actor.Name, actor.Address)
	return s, selectionError("select dead letters", err)
}

// SelectDeadLetters freezes dead letters by their ids, each once. *FunctionError: more than MaxSelected.
func (o *Operator) SelectDeadLetters(ctx context.Context, ids []uuid.UUID) (*Selection, error) {
	return o.freeze(ctx, &Collected{Kind: SelectedDeadLetters, deadLetters: ids}, fromIDs)
}

// SelectDeliveries freezes deliveries by their ids, each once. *FunctionError: more than MaxSelected.
func (o *Operator) SelectDeliveries(ctx context.Context, ids []int64) (*Selection, error) {
	return o.freeze(ctx, &Collected{Kind: SelectedDeliveries, deliveries: ids}, fromIDs)
}

// SelectCollected freezes what was collected from the rows of a query.
func (o *Operator) SelectCollected(ctx context.Context, ids *Collected) (*Selection, error) {
	return o.freeze(ctx, ids, fromQuery)
}

// freeze stores a selection in one transaction.
func (o *Operator) freeze(ctx context.Context, ids *Collected, source string) (s *Selection, err error) {
	ids.compact()
	if err := ids.check(""); err != nil {
		return nil, err
	}
	id, actor := uuid.Must(uuid.NewV7()), access.ActorOf(ctx)
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		table, columns := pgx.Identifier{"postrider_internal", "selection_items"}, []string{"selection_id", "position"}
		columns = append(columns, map[string]string{
			SelectedDeadLetters: "dead_letter_id", SelectedDeliveries: "delivery_id",
		}[ids.Kind])
		_, err := tx.CopyFrom(ctx, table, columns, pgx.CopyFromSlice(ids.Len(), func(i int) ([]any, error) {
			return []any{id, i + 1, ids.at(i)}, nil
		}))
		if err != nil {
			return fmt.Errorf("store the items: %w", err)
		}
		s, err = postgres.Row[Selection](ctx, tx, addSelection, id, ids.Kind, ids.Len(), source, actor.Name, actor.Address)
		return err
	})
	return s, selectionError("create a selection", err)
}

// Selection reads a selection of the actor, or any for an administrator. ErrNotFound: there is none, or it has expired.
func (o *Operator) Selection(ctx context.Context, id uuid.UUID) (*Selection, error) {
	actor := access.ActorOf(ctx)
	s, err := postgres.Row[Selection](ctx, o.db, findSelection, id, actor.Role.Allows(access.RoleAdmin), actor.Name)
	return s, selectionError("read a selection", err)
}

// ActOnSelection begins an operation on the items of a selection and returns the operation's id. *FunctionError.
func (o *Operator) ActOnSelection(ctx context.Context, id uuid.UUID, do *Action) (operation uuid.UUID, err error) {
	const function = `SELECT postrider_internal.act_on_selection($1, $2, nullif($3::text, ''), nullif($4::text, ''), $5,
		nullif($6::int, 0), $7, $8, $9)`
	return call[uuid.UUID](ctx, o, "act on a selection", function, id, do.Kind, do.To.Subscription, do.To.Topic, do.Again,
		do.Rate, access.ActorOf(ctx).Role.Allows(access.RoleAdmin))
}

// selectionError is a rejection of the database's functions, or an outage; nil for nil.
func selectionError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return postgres.CallError(doing, err)
}

// CleanSelections removes selections that have expired, unless an operation on them is running.
func (o *Operator) CleanSelections(ctx context.Context) error {
	for more := true; more; {
		const clean = "SELECT postrider_internal.clean_selections($1)"
		if err := o.db.QueryRow(ctx, clean, cleanItems).Scan(&more); err != nil {
			return fmt.Errorf("remove selections: %w", err)
		}
	}
	return nil
}

// stepSelection acts on the next items of a selection.
func stepSelection(ctx context.Context, tx pgx.Tx, op *operationRow) (stepResult, error) {
	most := op.most()
	if op.Kind == Retry || op.Kind == Cancel {
		most = min(most, eraseStep)
	}
	const call = "SELECT * FROM postrider_internal.step_selection($1, $2, $3)"
	return callStep(ctx, tx, call, op.ID, most, query.PastBytes)
}

// Collected are ids for a selection, collected one by one. A duplicate does not count.
type Collected struct {
	Kind        string
	deadLetters []uuid.UUID
	deliveries  []int64
}

// Len returns how many ids there are, with duplicates.
func (c *Collected) Len() int { return len(c.deadLetters) + len(c.deliveries) }

// AddDeadLetter adds a dead letter. *FunctionError: more than MaxSelected.
func (c *Collected) AddDeadLetter(id uuid.UUID) error {
	c.deadLetters = append(c.deadLetters, id)
	return c.bound()
}

// AddDelivery adds a delivery. *FunctionError: more than MaxSelected.
func (c *Collected) AddDelivery(id int64) error {
	c.deliveries = append(c.deliveries, id)
	return c.bound()
}

// bound limits the memory that duplicates use.
func (c *Collected) bound() error {
	if c.Len() < 2*MaxSelected {
		return nil
	}
	c.compact()
	return c.check("at least ")
}

// compact sorts the ids, the oldest first, and removes duplicates.
func (c *Collected) compact() {
	slices.SortFunc(c.deadLetters, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	c.deadLetters = slices.Compact(c.deadLetters)
	slices.Sort(c.deliveries)
	c.deliveries = slices.Compact(c.deliveries)
}

// check rejects too many; least is written before their number.
func (c *Collected) check(least string) error {
	if c.Len() <= MaxSelected {
		return nil
	}
	return postgres.Invalid("count", "a selection holds at most %d items, this one would have %s%d", MaxSelected, least,
		c.Len())
}

// at is the id of an item.
func (c *Collected) at(i int) any {
	if c.Kind == SelectedDeliveries {
		return c.deliveries[i]
	}
	return c.deadLetters[i]
}
