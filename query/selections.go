package query

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// SelectedItem is a dead letter or a delivery of a selection, as it is now.
type SelectedItem struct {
	Position     int        `json:"position"`
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
	DeliveryID   *int64     `json:"deliveryId"`
	Topic        *string    `json:"topic"`
	Subscription *string    `json:"subscription"`
	EventID      *string    `json:"eventId"`
	EventType    *string    `json:"eventType"`
	Subject      *string    `json:"subject"`
	Reason       *string    `json:"reason"`
	State        *string    `json:"state"`
	Hold         *string    `json:"hold"`
	// Result is what an operation would report now, for dead letters a redelivery; nil = nothing prevents it.
	Result  *string `json:"result"`
	Message *string `json:"message"`
}

// SelectedGroup counts the items of a selection that have these values in common.
type SelectedGroup struct {
	Topic        *string `json:"topic"`
	Subscription *string `json:"subscription"`
	Reason       *string `json:"reason"`
	State        *string `json:"state"`
	Hold         *string `json:"hold"`
	Result       *string `json:"result"`
	Message      *string `json:"message"`
	Count        int64   `json:"count"`
}

// Selected is the preview of a selection.
type Selected struct {
	// Groups are the most frequent ones among the first Grouped items; nil if counting took more than 10 s.
	Groups  []SelectedGroup `json:"groups"`
	Grouped int64           `json:"grouped"`
	Items   []SelectedItem  `json:"items"`
}

const (
	// selectedShown is how many items a preview has, and groupsShown how many groups.
	selectedShown, groupsShown = 50, 100
	// GroupSample is how many items are counted by group: reading 100,000 takes 0.9 s of CPU.
	GroupSample   = 100_000
	selectedFirst = "SELECT i.*, postrider_internal.result_message(i.result) AS message FROM ("
	// Messages are added after the groups, so that sorting has no bodies.
	selectedGroups = `SELECT g.*, postrider_internal.result_message(g.result) AS message FROM (
		SELECT i.topic, i.subscription, i.reason, i.state, i.hold, i.result, count(*) FROM (`
	groupedBy = ") i GROUP BY 1, 2, 3, 4, 5, 6) g ORDER BY g.count DESC, 1, 2, 3"
)

// ReadSelected reads the preview of a selection. deliveries: it has no dead letters. ErrTooSlow; ErrUnavailable.
func (r *Reader) ReadSelected(ctx context.Context, selection uuid.UUID, deliveries bool) (*Selected, error) {
	items := sql("selected_dead_letters")
	if deliveries {
		items = sql("selected_deliveries")
	}
	var s Selected
	var err error
	s.Items, err = postgres.Collect[SelectedItem](ctx, r.db, selectedFirst+items+") i ORDER BY i.position",
		pgx.NamedArgs{"selection": selection, "most": selectedShown})
	if err != nil {
		return nil, err
	}
	s.Groups, err = postgres.Collect[SelectedGroup](ctx, r.db, selectedGroups+items+groupedBy,
		pgx.NamedArgs{"selection": selection, "most": GroupSample})
	if errors.Is(err, postgres.ErrTooSlow) {
		return &s, nil
	}
	for _, g := range s.Groups {
		s.Grouped += g.Count
	}
	s.Groups = s.Groups[:min(len(s.Groups), groupsShown)]
	return &s, err
}

// OperationResult is an item that an operation on a selection skipped or failed to act on.
type OperationResult struct {
	Position     int        `json:"position"`
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
	DeliveryID   *int64     `json:"deliveryId"`
	Result       string     `json:"result"`
	CountedAs    string     `json:"countedAs" enum:"skipped,failed"`
	Message      string     `json:"message"`
}

// OperationResults lists up to limit results of an operation, after a position in its selection.
func (r *Reader) OperationResults(
	ctx context.Context, operation uuid.UUID, after, limit int,
) ([]OperationResult, error) {
	const list = `SELECT position, dead_letter_id, delivery_id, result, counted_as, message
		FROM postrider.operation_results WHERE operation_id = $1 AND position > $2 ORDER BY position LIMIT $3`
	return postgres.Collect[OperationResult](ctx, r.db, list, operation, after, limit)
}

// EachSelected calls do for the dead letters at most positions of a selection after one, until do fails. It skips those
// that are gone or erased. reached is the last position that needs no further call: after, at the end.
func EachSelected(
	ctx context.Context, db postgres.Querier, selection uuid.UUID, after, most int, do func(*StoredDeadLetter) error,
) (reached int, err error) {
	const window = `SELECT position, dead_letter_id FROM postrider_internal.selection_items
		WHERE selection_id = $1 AND position > $2 AND dead_letter_id IS NOT NULL ORDER BY position LIMIT $3`
	type item struct {
		Position     int
		DeadLetterID uuid.UUID
	}
	items, err := postgres.Rows[item](ctx, db, window, selection, after, most)
	if err != nil {
		return after, postgres.ReadError("a selection", err)
	}
	positions, ids := map[uuid.UUID]int{}, []uuid.UUID{}
	for _, i := range items {
		positions[i.DeadLetterID] = i.Position
		ids = append(ids, i.DeadLetterID)
	}
	const where = " WHERE l.id = ANY ($1) AND l.erased_at IS NULL ORDER BY array_position($1, l.id)"
	reached = after
	err = WalkDeadLetters(ctx, db, where, []any{ids}, func(l *StoredDeadLetter) error {
		err := do(l)
		if err == nil {
			reached = positions[l.ID]
		}
		return err
	})
	if err == nil && len(items) > 0 {
		reached = items[len(items)-1].Position
	}
	return reached, err
}

// maxDeliveryIDs is one more than a selection may have.
const maxDeliveryIDs = 1_000_001

// deliveryIDsTime bounds the search of DeliveryIDs, which its caller waits for.
const deliveryIDsTime = 30 * time.Second

// DeliveryIDs returns the ids of the deliveries that a filter matches, up to one more than a selection may have.
// ErrTooSlow; ErrUnavailable.
func (r *Reader) DeliveryIDs(ctx context.Context, f DeliveryFilter) (ids []int64, err error) {
	err = postgres.ReadWithin(ctx, r.db, deliveryIDsTime, "deliveries", func(tx pgx.Tx) error {
		r := &reading{ctx: ctx, tx: tx}
		args, _, some := bindDeliveries(r, f)
		if r.err != nil || !some {
			return r.err
		}
		args["limit"], args["backwards"] = maxDeliveryIDs, false
		ids, err = postgres.Values[int64](ctx, tx, sql("delivery_ids"), args)
		return err
	})
	return ids, err
}
