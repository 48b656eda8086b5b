package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
)

// actOn begins an operation on a selection.
func (b *bundle) actOn(t *testing.T, s *operator.Selection, do operator.Action) uuid.UUID {
	t.Helper()
	id, err := b.store.Operator.ActOnSelection(t.Context(), s.ID, &do)
	require.NoError(t, err)
	return id
}

// results are the results of an operation, in order.
func (b *bundle) results(t *testing.T, operation uuid.UUID) []string {
	t.Helper()
	list, err := postgres.Values[string](t.Context(), b.pool, `SELECT concat_ws(' ', position, result, counted_as)
		FROM postrider.operation_results WHERE operation_id = $1 ORDER BY position`, operation)
	require.NoError(t, err)
	return list
}

// Steps by several nodes, of which one died in each, redeliver each dead letter once.
func TestRedeliverSelection(t *testing.T) {
	t.Parallel()
	b, letters := deadMany(t, 30)
	s, err := b.store.Operator.SelectDeadLetters(t.Context(), append(letters, letters[3], letters[4]))
	require.NoError(t, err)
	require.Equal(t, 30, s.Count, "each once")
	b.exec(t, "SELECT postrider.redeliver($1)", letters[7])
	b.exec(t, "SELECT postrider.purge($1)", letters[8])
	b.exec(t, "UPDATE postrider_internal.dead_letters SET body = '' WHERE id = $1", letters[9])
	b.dead(t, "orders", "later", 2)
	id := b.actOn(t, s, operator.Action{Kind: operator.Redeliver, Rate: 10})
	for range 3 {
		lost, _ := b.reclaimOperation(t)
		b.operate(t)
		_, more, err := b.store.Operator.Operate(t.Context(), lost)
		require.NoError(t, err)
		require.False(t, more, "the node that was thought dead does nothing")
	}
	b.requireOperation(t, id, "redeliver done: matched 30 done 27 skipped 2 failed 1")
	require.Equal(t, []string{"8 redelivered skipped", "9 missing skipped", "10 erased failed"}, b.results(t, id))
	require.Equal(t, 28, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"))
	require.Equal(t, 28, b.count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider_internal.deliveries"))

	id = b.actOn(t, s, operator.Action{Kind: operator.Redeliver})
	b.operate(t)
	b.requireOperation(t, id, "redeliver done: matched 30 done 0 skipped 29 failed 1")
	id = b.actOn(t, s, operator.Action{Kind: operator.Redeliver, Again: true})
	b.operate(t)
	b.requireOperation(t, id, "redeliver done: matched 30 done 28 skipped 1 failed 1")
}

func TestPurgeSelection(t *testing.T) {
	t.Parallel()
	b, letters := deadMany(t, 5)
	s, err := b.store.Operator.SelectFilter(t.Context(), &query.DeadLetterFilter{Topic: new("orders")})
	require.NoError(t, err)
	require.Equal(t, 5, s.Count)
	b.dead(t, "orders", "later", 1)
	b.exec(t, "SELECT postrider.purge($1)", letters[0])
	id := b.actOn(t, s, operator.Action{Kind: operator.Purge})
	_, more := b.operate(t)
	require.False(t, more)
	b.requireOperation(t, id, "purge done: matched 5 done 4 skipped 1 failed 0")
	require.Equal(t, []string{"1 missing skipped"}, b.results(t, id))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE event_id = 'later-0'"))
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider.audit WHERE action = 'selection_created'
		AND details ->> 'count' = '5' AND details ->> 'source' = 'filter'`))
}

// A delivery that cannot be retried or canceled does not stop the others.
func TestRetryAndCancelSelection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    string
		results []string
		counts  string
		changed string
	}{
		{
			operator.Retry,
			[]string{"1 running skipped", "2 ended skipped", "4 paused failed", "5 missing skipped"},
			"retry done: matched 5 done 1 skipped 3 failed 1",
			"SELECT count(*) FROM postrider_internal.river_job WHERE args ->> 'd' = $1 AND scheduled_at <= now()",
		},
		{
			operator.Cancel,
			[]string{"2 ended skipped", "5 missing skipped"},
			"cancel done: matched 5 done 3 skipped 2 failed 0",
			"SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1::text::bigint AND reason = 'CanceledByOperator'",
		},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			b, sub := operateSetup(t)
			b.topic(t, "paused")
			ids := b.failed(t, sub, 3)
			ids = append(ids, b.failed(t, b.subscription(t, "paused", "all", nil), 1)...)
			_, err := b.store.Holds.Pause(t.Context(), "paused", "all", nil)
			require.NoError(t, err)
			b.exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
				"attempted_by = '{node-1}' WHERE args ->> 'd' = $1", fmt.Sprint(ids[0]))
			b.exec(t, "SELECT postrider.cancel($1)", ids[1])
			s, err := b.store.Operator.SelectDeliveries(t.Context(), append(ids, 999_999, ids[0]))
			require.NoError(t, err)
			id := b.actOn(t, s, operator.Action{Kind: c.kind})
			_, more := b.operate(t)
			require.False(t, more)
			b.requireOperation(t, id, c.counts)
			require.Equal(t, c.results, b.results(t, id))
			require.Equal(t, 1, b.count(t, c.changed, fmt.Sprint(ids[2])))
			require.Zero(t, b.count(t, brokenTokens))
			require.Zero(t, b.count(t, "SELECT count(*) FROM postrider.audit WHERE action = 'delivery_retried'"))
		})
	}
}

// Only its creator and administrators may use a selection, for the kind of items that it has.
func TestSelectionsAreProtected(t *testing.T) {
	t.Parallel()
	b, letters := deadMany(t, 1)
	as := func(name string, role access.Role) context.Context {
		return access.WithActor(t.Context(), access.Actor{Name: name, Role: role})
	}
	anna := as("user:anna", access.RoleOperator)
	s, err := b.store.Operator.SelectDeadLetters(anna, letters)
	require.NoError(t, err)
	require.Equal(t, "user:anna", s.CreatedBy)
	for ctx, allowed := range map[context.Context]bool{
		anna: true, as("user:bob", access.RoleOperator): false, as("admin", access.RoleAdmin): true,
	} {
		found, err := b.store.Operator.Selection(ctx, s.ID)
		_, acting := b.store.Operator.ActOnSelection(ctx, s.ID, &operator.Action{Kind: operator.Redeliver})
		if allowed {
			require.NoError(t, err)
			require.NoError(t, acting)
			require.Equal(t, s, found)
			continue
		}
		require.ErrorIs(t, err, postgres.ErrNotFound)
		require.ErrorIs(t, acting, postgres.ErrNotFound)
	}
	_, err = b.store.Operator.ActOnSelection(anna, s.ID, &operator.Action{Kind: operator.Cancel})
	require.ErrorContains(t, err, "has dead letters: they cannot be canceled")
	_, err = b.store.Operator.ActOnSelection(anna, s.ID, &operator.Action{
		Kind: operator.Redeliver, To: operator.Target{Subscription: "none", Topic: "orders"},
	})
	require.ErrorContains(t, err, `topic "orders" has no event subscription "none"`)
	b.exec(t, "UPDATE postrider_internal.selections SET expires_at = now()")
	_, err = b.store.Operator.Selection(anna, s.ID)
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

// Expired selections are removed, except those that a running operation uses.
func TestSelectionsAreCleaned(t *testing.T) {
	t.Parallel()
	b, letters := deadMany(t, 3)
	s, err := b.store.Operator.SelectDeadLetters(t.Context(), letters)
	require.NoError(t, err)
	_, err = b.store.Operator.SelectDeadLetters(t.Context(), letters[:1])
	require.NoError(t, err)
	id := b.actOn(t, s, operator.Action{Kind: operator.Purge})
	const items = "SELECT count(*) FROM postrider_internal.selection_items"
	require.NoError(t, b.store.Operator.CleanSelections(t.Context()))
	require.Equal(t, 4, b.count(t, items))
	b.exec(t, "UPDATE postrider_internal.selections SET expires_at = now()")
	require.NoError(t, b.store.Operator.CleanSelections(t.Context()))
	require.Equal(t, 3, b.count(t, items), "the operation runs")
	b.operate(t)
	b.requireOperation(t, id, "purge done: matched 3 done 3 skipped 0 failed 0")
	require.NoError(t, b.store.Operator.CleanSelections(t.Context()))
	require.Zero(t, b.count(t, items))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.selections"))
}

// A selection has at most a million items, and more are rejected with their number.
func TestSelectionsAreLimited(t *testing.T) {
	t.Parallel()
	b, _ := deadMany(t, 1)
	ids := make([]int64, 1_000_001)
	for i := range ids {
		ids[i] = int64(i)
	}
	_, err := b.store.Operator.SelectDeliveries(t.Context(), ids)
	require.ErrorIs(t, err, postgres.ErrInvalid)
	require.Equal(t, "a selection holds at most 1000000 items, this one would have 1000001", theNo(t, err).Message)
}
