package jobs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A search that the loop's interval began, before the requested one, replaces that request.
func TestOneSearchIsRequestedAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, began := &collector{again: make(chan struct{}, 1)}, time.Now()
		c.searchAfter(300 * time.Millisecond)
		<-time.After(250 * time.Millisecond)
		c.searchAfter(300 * time.Millisecond)
		<-c.again
		require.Equal(t, 550*time.Millisecond, time.Since(began))
	})
}
