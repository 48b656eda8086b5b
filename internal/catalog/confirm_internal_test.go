package catalog

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reload that has begun may miss a later change: a later caller needs another one.
func TestReloadsAreSharedUntilTheyBegin(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan error)
	c := confirmer{reload: func(context.Context) error {
		began <- struct{}{}
		return <-finish
	}}
	first := c.join()
	<-began
	second, third := c.join(), c.join()
	require.NotSame(t, first, second, "the first reload has begun")
	require.Same(t, second, third, "the second has not begun")
	finish <- nil
	<-first.done
	require.NoError(t, first.err)
	select {
	case <-began:
	case <-second.done:
		require.Fail(t, "it ended without a reload")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, c.confirm(gone), context.Canceled, "a caller can leave")
	failure := errors.New("no database")
	finish <- failure
	<-second.done
	require.ErrorIs(t, second.err, failure)
	<-began // the reload for the caller that left
	finish <- nil
}
