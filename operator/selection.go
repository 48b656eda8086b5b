package operator

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/access"
	"postrider/postgres"
	"postrider/query"
	"postrider/sqlquery"
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
	Repair    = "repair"    // dead letters
	Purge     = "purge"     // dead letters
	Retry     = "retry"     // deliveries
	Cancel    = "cancel"    // deliveries
)

// Action is what an operation does with each item of a selection.
type Action struct {
	Kind string
	// To and Again are of Redeliver and Repair: Again also redelivers dead letters that were redelivered before.
	To    Target
	Again bool
	// Patch of a Repair changes their events, see ParsePatch. IncludeUnchanged also redelivers those that it does not
	// change.
	Patch            []byte
	IncludeUnchanged bool
	// Rate is the most per second; 0 = no limit.
	Rate int
}

const (
	// MaxSelected is the most items of a selection.
	MaxSelected = 1_000_000
	// cleanItems is how many items one transaction removes.
	cleanItems = 20_000
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
	return o.freeze(ctx, &collected{deadLetters: ids}, "ids")
}

// SelectDeliveries freezes deliveries by their ids, each once. *FunctionError: more than MaxSelected.
func (o *Operator) SelectDeliveries(ctx context.Context, ids []int64) (*Selection, error) {
	return o.freeze(ctx, &collected{kind: SelectedDeliveries, deliveries: ids}, "ids")
}

// SelectDeliveryFilter freezes the deliveries that a filter matches now. *FunctionError: more than MaxSelected.
// ErrTooSlow; ErrUnavailable.
func (o *Operator) SelectDeliveryFilter(
	ctx context.Context, reader *query.Reader, filter query.DeliveryFilter,
) (*Selection, error) {
	ids, err := reader.DeliveryIDs(ctx, filter)
	if err != nil {
		return nil, err
	}
	return o.freeze(ctx, &collected{kind: SelectedDeliveries, deliveries: ids}, "filter")
}

// SelectQuery freezes the ids in the column dead_letter_id of a query's result, or else in its column delivery_id. With
// kind, only the column of that kind counts. The errors are those of Runner.Run, and *FunctionError: more than
// MaxSelected.
func (o *Operator) SelectQuery(
	ctx context.Context, queries *sqlquery.Runner, q sqlquery.Request, kind string,
) (*Selection, error) {
	ids, column := collected{}, 0
	begin := func(columns []sqlquery.Column) error {
		for _, is := range []string{SelectedDeadLetters, SelectedDeliveries} {
			at := slices.IndexFunc(columns, func(c sqlquery.Column) bool { return c.Name == IDColumns[is] })
			if at >= 0 && (kind == "" || kind == is) {
				ids.kind, column = is, at
				return nil
			}
		}
		wanted := cmp.Or(IDColumns[kind], "dead_letter_id or delivery_id")
		return &sqlquery.Error{Message: "the result has no column " + wanted}
	}
	err := queries.Stream(ctx, q, begin, func(row []*string) error {
		if row[column] == nil {
			return nil
		}
		return ids.add(*row[column])
	})
	if err != nil {
		return nil, err
	}
	return o.freeze(ctx, &ids, "query")
}

// IDColumns are the columns with the ids of a selection's items.
var IDColumns = map[string]string{SelectedDeadLetters: "dead_letter_id", SelectedDeliveries: "delivery_id"}

// freeze stores a selection in one transaction.
func (o *Operator) freeze(ctx context.Context, ids *collected, source string) (s *Selection, err error) {
	ids.kind = cmp.Or(ids.kind, SelectedDeadLetters)
	ids.compact()
	if err := ids.check(""); err != nil {
		return nil, err
	}
	id, actor := uuid.Must(uuid.NewV7()), access.ActorOf(ctx)
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		table := pgx.Identifier{"postrider_internal", "selection_items"}
		columns := []string{"selection_id", "position", IDColumns[ids.kind]}
		_, err := tx.CopyFrom(ctx, table, columns, pgx.CopyFromSlice(ids.len(), func(i int) ([]any, error) {
			return []any{id, i + 1, ids.at(i)}, nil
		}))
		if err != nil {
			return fmt.Errorf("store the items: %w", err)
		}
		s, err = postgres.Row[Selection](ctx, tx, addSelection, id, ids.kind, ids.len(), source, actor.Name, actor.Address)
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
	var paths []string
	if do.Kind == Repair {
		patch, err := ParsePatch(do.Patch)
		if err != nil {
			return uuid.Nil, err
		}
		paths = patch.Paths()
	}
	const function = `SELECT postrider_internal.act_on_selection($1, $2, nullif($3::text, ''), nullif($4::text, ''), $5,
		nullif($6::int, 0), nullif($7::text, ''), $8, $9, $10, $11, $12)`
	return call[uuid.UUID](ctx, o, "act on a selection", function, id, do.Kind, do.To.Subscription, do.To.Topic, do.Again,
		do.Rate, string(do.Patch), paths, do.IncludeUnchanged, access.ActorOf(ctx).Role.Allows(access.RoleAdmin))
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

// collected are the ids of a selection.
type collected struct {
	kind        string
	deadLetters []uuid.UUID
	deliveries  []int64
}

// len returns how many ids there are, with duplicates.
func (c *collected) len() int { return len(c.deadLetters) + len(c.deliveries) }

// add adds an id of a query's result. Duplicates use memory, so they are removed from time to time.
func (c *collected) add(text string) error {
	var err error
	if c.kind == SelectedDeliveries {
		var id int64
		id, err = strconv.ParseInt(text, 10, 64)
		c.deliveries = append(c.deliveries, id)
	} else {
		var id uuid.UUID
		id, err = uuid.Parse(text)
		c.deadLetters = append(c.deadLetters, id)
	}
	if err != nil {
		return &sqlquery.Error{Message: fmt.Sprintf("column %s has %.40q, which is not an id", IDColumns[c.kind], text)}
	}
	if c.len() < 2*MaxSelected {
		return nil
	}
	c.compact()
	return c.check("at least ")
}

// compact sorts the ids, the oldest first, and removes duplicates.
func (c *collected) compact() {
	slices.SortFunc(c.deadLetters, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	c.deadLetters = slices.Compact(c.deadLetters)
	slices.Sort(c.deliveries)
	c.deliveries = slices.Compact(c.deliveries)
}

// check rejects too many; least is written before their number.
func (c *collected) check(least string) error {
	if c.len() <= MaxSelected {
		return nil
	}
	return postgres.Invalid("count", "a selection holds at most %d items, this one would have %s%d", MaxSelected, least,
		c.len())
}

// at is the id of an item.
func (c *collected) at(i int) any {
	if c.kind == SelectedDeliveries {
		return c.deliveries[i]
	}
	return c.deadLetters[i]
}
