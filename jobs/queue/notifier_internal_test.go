package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotifierWakesRoutesOnlyWhenThereAreAny(t *testing.T) {
	t.Parallel()
	n := &Notifier{queue: make(chan struct{}, 1)}
	n.Poke()
	require.Equal(t, notifyStatement, n.statement())
	n.PokeRoutes()
	n.Poke()
	require.Equal(t, notifyBothStatement, n.statement())
	require.Equal(t, notifyStatement, n.statement(), "once")
}
