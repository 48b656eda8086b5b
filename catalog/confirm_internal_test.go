package catalog

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a look that has begun will see was settled before: whoever comes later needs another one.
func TestLooksAreSharedUntilTheyBegin(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan error)
	c := confirmer{reload: func(context.Context) error {
		began <- struct{}{}
		return <-finish
	}}
	first := c.join()
	<-began
	second, third := c.join(), c.join()
	require.NotSame(t, first, second, "it has begun")
	require.Same(t, second, third, "it has not")
	finish <- nil
	<-first.done
	require.NoError(t, first.err)
	select {
	case <-began:
	case <-second.done:
		require.Fail(t, "it ended without having looked")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, c.confirm(gone), context.Canceled, "nobody has to wait")
	failure := errors.New("no database")
	finish <- failure
	<-second.done
	require.ErrorIs(t, second.err, failure)
	<-began // the look of the one who left
	finish <- nil
}
