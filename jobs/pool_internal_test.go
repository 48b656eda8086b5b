package jobs

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// goroutineID is the number of the calling goroutine.
func goroutineID() string {
	stack := make([]byte, 64)
	return strings.Fields(string(stack[:runtime.Stack(stack, false)]))[1]
}

// idleNow is the number of idle goroutines.
func (g *goroutines) idleNow() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.idle)
}

func TestGoroutinesAreUsedAgain(t *testing.T) {
	t.Parallel()
	var g goroutines
	wait := func(idle int) {
		require.Eventually(t, func() bool { return g.idleNow() == idle }, time.Minute, time.Millisecond)
	}
	ran := make(chan string, 1)
	g.Go(func() { ran <- goroutineID() })
	first := <-ran
	wait(1)
	g.Go(func() { ran <- goroutineID() })
	require.Equal(t, first, <-ran)
	wait(1)

	block, both := make(chan struct{}), sync.WaitGroup{}
	both.Add(2)
	for range 2 { // one more is started while the first one is busy
		g.Go(func() { both.Done(); <-block })
	}
	both.Wait()
	require.Zero(t, g.idleNow())
	close(block)
	wait(2)

	g.sweep()
	require.Equal(t, 2, g.idleNow())
	g.Go(func() { ran <- "" })
	<-ran
	wait(2)
	g.sweep()
	require.Equal(t, 1, g.idleNow(), "one was not used since the last sweep")
	g.Close()
	require.Zero(t, g.idleNow())
	g.Go(func() { ran <- "after Close" })
	require.Equal(t, "after Close", <-ran, "a function runs all the same")
}
