package testnode

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tick is the first pause between two looks at the database.
const tick = 10 * time.Millisecond

// Count returns the number that a query returns. It works in cleanups, too.
func (tn *Node) Count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var count int
	require.NoError(t, tn.Pool.QueryRow(context.WithoutCancel(t.Context()), query, args...).Scan(&count))
	return count
}

// Become waits until a query returns a number.
func (tn *Node) Become(t testing.TB, want int, query string, args ...any) {
	t.Helper()
	Within(t, query, func() bool { return tn.Count(t, query, args...) == want })
}

// Within waits until a condition holds, and looks less often the longer it takes.
func Within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(Timeout)
	for pause := tick; !holds(); pause = min(pause+pause/8, 10*tick) {
		require.True(t, time.Now().Before(end), "not within %s: %s", Timeout, what)
		<-time.After(pause)
	}
}

// Exec executes a statement.
func (tn *Node) Exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := tn.Pool.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

// Text returns the text that a query returns.
func (tn *Node) Text(t testing.TB, query string, args ...any) string {
	t.Helper()
	var text string
	require.NoError(t, tn.Pool.QueryRow(t.Context(), query, args...).Scan(&text))
	return text
}

// Value returns the one value that a query returns.
func Value[T any](t testing.TB, tn *Node, query string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, tn.Pool.QueryRow(t.Context(), query, args...).Scan(&value))
	return value
}

// AtOnce runs a function n times at the same time, and waits for all.
func AtOnce(n int, run func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { run(i) })
	}
	group.Wait()
}

// ErrorOf returns the error of a call that also returns a value.
func ErrorOf[T any](_ T, err error) error { return err }
