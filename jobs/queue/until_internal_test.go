package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var u Until[int]
		require.False(t, u.Has(1, 2))
		u.Set(time.Second, 1, 2)
		require.True(t, u.Has(3, 2))
		require.False(t, u.Has(3))
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.False(t, u.Has(1, 2))
		u.Set(time.Minute, 3)
		require.Len(t, u.times, 1, "those whose time has passed are forgotten")
	})
}
