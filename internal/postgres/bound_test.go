package postgres_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func TestBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := postgres.NewBound("searches", 3, 2)
		take := func(credential string) func() {
			t.Helper()
			release, err := b.Take(t.Context(), credential)
			require.NoError(t, err)
			return release
		}
		first, second := take("anna"), take("anna")
		var busy *postgres.BusyError
		_, err := b.Take(t.Context(), "anna")
		require.ErrorAs(t, err, &busy)
		require.True(t, busy.Own)
		require.EqualError(t, err, "at most 2 of your searches at a time on a node; retry when one has ended")

		third := take("bob")
		_, err = b.Take(t.Context(), "carla")
		require.ErrorAs(t, err, &busy)
		require.False(t, busy.Own)
		require.EqualError(t, err, "3 searches run on this node, the most; retry later")

		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the client has disconnected"))
		for _, credential := range []string{"anna", "bob", "carla"} {
			_, err = b.Take(canceled, credential)
			require.ErrorIs(t, err, context.Canceled)
		}

		waiting := make(chan func())
		go func() { waiting <- take("anna") }()
		synctest.Wait()
		first()
		third()
		(<-waiting)()
		second()
		for range 2 { // all places are free again
			defer take("anna")()
		}
		defer take("bob")()
	})
}
