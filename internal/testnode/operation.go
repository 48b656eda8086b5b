package testnode

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stretchr/testify/require"

	"postrider/internal/operator"
	"postrider/internal/query"
)

// OperationJob is the job of the one operation that there is.
const OperationJob = "SELECT id FROM postrider_internal.river_job WHERE kind = 'operation'"

// ManyDeadLetters is a topic with one event subscription with n dead letters.
func ManyDeadLetters(t testing.TB, n int) (*Node, []uuid.UUID) {
	t.Helper()
	tn, _ := Orders(t)
	return tn, tn.DeadLetters(t, "orders", "e", n)
}

// Operate makes the next step of the one operation that there is.
func (tn *Node) Operate(t testing.TB) (pause time.Duration, more bool) {
	t.Helper()
	pause, more, err := tn.System.Operator.Operate(t.Context(), int64(tn.Count(t, OperationJob)))
	require.NoError(t, err)
	return pause, more
}

// RequireOperation compares how an operation stands.
func (tn *Node) RequireOperation(t testing.TB, id uuid.UUID, want string) {
	t.Helper()
	o, err := tn.System.Reader.Operation(t.Context(), id)
	require.NoError(t, err)
	matched := "-"
	if o.Matched != nil {
		matched = fmt.Sprint(*o.Matched)
	}
	require.Equal(t, want,
		fmt.Sprintf("%s %s: matched %s done %d skipped %d failed %d", o.Kind, o.State, matched, o.Done, o.Skipped, o.Failed))
	require.Equal(t, o.State != query.OperationRunning, o.FinishedAt != nil)
}

// BeginOperation begins an operation on dead letters. Its first step counts.
func (tn *Node) BeginOperation(t testing.TB, filter *query.DeadLetterFilter, do operator.Action) uuid.UUID {
	t.Helper()
	id, err := tn.System.Operator.OnDeadLetters(t.Context(), filter, &do)
	require.NoError(t, err)
	return id
}

// OperateOn makes the steps that are left.
func (tn *Node) OperateOn(t testing.TB) {
	t.Helper()
	for steps, more := 0, true; more; steps++ {
		require.Less(t, steps, 50, "it does not end")
		_, more = tn.Operate(t)
	}
}
