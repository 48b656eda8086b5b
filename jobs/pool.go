package jobs

import (
	"sync"
	"time"
)

const goroutineIdleTime = 10 * time.Second

// goroutines runs functions on goroutines that it uses again: their stacks have grown already.
type goroutines struct {
	mu       sync.Mutex
	idle     []chan func() // the last one was used last; a closed one ends
	unused   int           // how many of the first ones were idle since the last sweep
	sweeping bool          // a timer will end those
	closed   bool
}

// Go runs a function, which must not panic, on an idle or a new goroutine.
func (g *goroutines) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.idle) - 1
	if last < 0 {
		go g.work(f)
		return
	}
	g.idle[last] <- f // never waits: the channel of an idle goroutine is empty
	g.idle = g.idle[:last]
	g.unused = min(g.unused, last)
}

func (g *goroutines) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		g.wait(next)
		f = <-next
	}
}

func (g *goroutines) wait(next chan func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		close(next)
		return
	}
	g.idle = append(g.idle, next)
	if !g.sweeping {
		g.sweeping = true
		time.AfterFunc(goroutineIdleTime, g.sweep)
	}
}

// sweep ends the goroutines that were idle since the last sweep.
func (g *goroutines) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(g.unused)
	if g.sweeping = len(g.idle) > 0; g.sweeping {
		time.AfterFunc(goroutineIdleTime, g.sweep)
	}
}

// Close ends the goroutines when they are idle.
func (g *goroutines) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.end(len(g.idle))
}

func (g *goroutines) end(n int) {
	for _, next := range g.idle[:n] {
		close(next)
	}
	g.idle = append([]chan func(){}, g.idle[n:]...)
	g.unused = len(g.idle)
}
