package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	likeTopicStatement = `
SELECT name FROM postrider_internal.topics WHERE lower(name COLLATE "C") = lower($1 COLLATE "C") AND deleted_at IS NULL`
	likeSubscriptionStatement = `
SELECT name FROM postrider_internal.event_subscriptions
 WHERE topic_id = $2 AND lower(name COLLATE "C") = lower($1 COLLATE "C") AND deleted_at IS NULL`
)

// nameFree reports, as a *FunctionError that is ErrConflict, that a name differs only in letter case from one that
// exists.
func nameFree(ctx context.Context, db postgres.Querier, kind, statement, name string, args ...any) error {
	var existing string
	switch err := db.QueryRow(ctx, statement, append([]any{name}, args...)...).Scan(&existing); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read the name of the %s: %w", kind, err)
	}
	return postgres.NewFunctionError(postgres.ErrNameTaken, "name",
		"%s %q cannot be created: %q exists, and names must not differ only in letter case", kind, name, existing)
}

// CheckNameFree reports whether an event subscription that does not exist can have this name. *FunctionError,
// which is ErrConflict: one exists whose name differs only in letter case.
func (s *Subscriptions) CheckNameFree(ctx context.Context, topic *Topic, name string) error {
	return subscriptionNameFree(ctx, s.db, topic.ID, name)
}

func subscriptionNameFree(ctx context.Context, db postgres.Querier, topicID int64, name string) error {
	return nameFree(ctx, db, "event subscription", likeSubscriptionStatement, name, topicID)
}
