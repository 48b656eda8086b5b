package testnode

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Count returns the number that a query returns. It works in cleanups, too.
func (tn *Node) Count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var count int
	require.NoError(t, tn.Pool.QueryRow(context.WithoutCancel(t.Context()), query, args...).Scan(&count))
	return count
}

// Become waits until a query returns a number. It fails if the number does not change for Timeout: on a busy machine,
// hundreds of attempts take longer.
func (tn *Node) Become(t testing.TB, want int, query string, args ...any) {
	t.Helper()
	began := time.Now()
	changed, number := began, tn.Count(t, query, args...)
	for number != want {
		<-time.After(Pause(time.Since(began)))
		next := tn.Count(t, query, args...)
		if next != number {
			changed, number = time.Now(), next
		}
		require.Less(t, time.Since(changed), Timeout, "%d, not %d: %s", number, want, query)
	}
}

// Within waits until a condition holds. The longer it takes, the less often it is checked: a query that is planned each
// time takes as much CPU as the test.
func Within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); <-time.After(Pause(time.Since(began))) {
		require.Less(t, time.Since(began), Timeout, "not within %s: %s", Timeout, what)
	}
}

// Pause is the pause before the next check of a condition that did not hold for so long: an eighth, 10 to 500 ms.
func Pause(waited time.Duration) time.Duration {
	return min(max(waited/8, 10*time.Millisecond), 500*time.Millisecond)
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
