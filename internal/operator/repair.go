package operator

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/event"
	"postrider/internal/postgres"
)

// Repair delivers an edited event instead of that of a dead letter, and returns the id of its delivery. The event is
// validated as publishing does, and stored byte for byte with its lineage. One that was redelivered before is rejected
// unless again. *event.Error; otherwise the errors of Redeliver.
func (o *Operator) Repair(
	ctx context.Context, id uuid.UUID, edited []byte, to Target, again bool, when ...postgres.Condition,
) (delivery int64, err error) {
	in, err := o.inputOf(ctx, id)
	if err != nil {
		return 0, err
	}
	e, err := in.ParseOne(edited)
	if err != nil {
		return 0, err
	}
	const function = `SELECT postrider_internal.redeliver($1, nullif($2::text, ''), nullif($3::text, ''), $4, $5, NULL,
		ROW (postrider_internal.new_uuid(), $6::timestamptz, $7::text, $8::text, $9::text, $10::text, $11::text,
		    nullif($12::text, ''), nullif($13::text, ''), $14::bytea)::postrider_internal.envelope, $15, $16)`
	delivery, err = call[int64](ctx, o, "repair a dead letter", function, id, to.Subscription, to.Topic, again,
		versions(when), postgres.NullTime(storedTime(e)), e.ID, e.Type, e.Subject, e.Source, e.DataVersion,
		e.Trace.Parent, e.Trace.State, e.Body)
	return delivery, redeliveryError(err)
}

// CheckEdit validates an edited event of a dead letter without storing it. *event.Error, *FunctionError.
func (o *Operator) CheckEdit(ctx context.Context, id uuid.UUID, edited []byte) error {
	in, err := o.inputOf(ctx, id)
	if err != nil {
		return err
	}
	_, err = in.ParseOne(edited)
	return err
}

// inputOf is how the edited event of a dead letter is read: as its topic reads published events. *FunctionError.
func (o *Operator) inputOf(ctx context.Context, id uuid.UUID) (*event.Input, error) {
	const query = `SELECT topic, input_schema AS schema, input_schema_mapping AS mapping, relay <> 'none' AS any_topic
		FROM postrider_internal.topic_of_edit($1)`
	rows, _ := o.db.Query(ctx, query, id) // CollectOneRow returns its error
	in, err := pgx.CollectOneRow(rows, pgx.RowToStructByNameLax[event.Input])
	if err != nil {
		return nil, postgres.CallError("read the topic of a dead letter", err)
	}
	in.NewID, in.Now = uuid.NewString, o.clock.Now()
	return &in, nil
}

// storedTime is the time of an event as publishing stores it: that of a custom event is delivered as it is stored, and
// PostgreSQL keeps microseconds.
func storedTime(e *event.Event) time.Time {
	if e.Schema == event.Custom {
		return e.Time.Truncate(time.Microsecond)
	}
	return e.Time
}

// versions are those that a dead letter may have by the conditions; nil for any.
func versions(when []postgres.Condition) []int64 {
	var list []int64
	for _, c := range when {
		if c.Versions == nil {
			continue
		}
		list = []int64{}
		for _, v := range c.Versions {
			list = append(list, int64(v))
		}
	}
	return list
}

// redeliveryError is the error of a redelivery; ErrPrecondition if the dead letter has another version.
func redeliveryError(err error) error {
	if rejection, ok := errors.AsType[*postgres.FunctionError](err); ok && rejection.Conflict == "precondition" {
		return postgres.ErrPrecondition
	}
	return err
}
