package query

import (
	"context"

	"postrider/internal/postgres"
)

// CheckNames returns a *FunctionError, which is ErrNotFound, if a list or an operation is to be of a topic or an event
// subscription that does not exist and never did: a misspelled name must not look like an empty list. What was deleted
// still has events, dead letters and other rows. "" = all. ErrTooSlow, ErrUnavailable.
func (r *Reader) CheckNames(ctx context.Context, topic, subscription string) error {
	var known struct{ Topic, Subscription bool }
	if topic == "" && subscription == "" {
		return nil
	}
	err := read(ctx, r.db, "names", func(r *reading) {
		known = row[struct{ Topic, Subscription bool }](r, "known_names", topic, subscription)
	})
	switch {
	case err != nil:
		return err
	case topic != "" && !known.Topic:
		return postgres.NewFunctionError(postgres.ErrNotFound, "topic", "topic %q does not exist", topic)
	case subscription != "" && !known.Subscription && topic != "":
		return postgres.NewFunctionError(postgres.ErrNotFound, "subscription", "topic %q has no event subscription %q",
			topic, subscription)
	case subscription != "" && !known.Subscription:
		return postgres.NewFunctionError(postgres.ErrNotFound, "subscription", "no topic has an event subscription %q",
			subscription)
	}
	return nil
}
