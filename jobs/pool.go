package jobs

import (
	"sync"
	"time"
)

const goroutineIdleTime = 10 * time.Second

// goroutines runs functions on goroutines that it uses again: their stacks have grown already.
type goroutines struct {
	mu       sync.Mutex
	idle     []*idleGoroutine // the last one was used last
	sweeping bool             // a timer ends those that are idle for too long
	closed   bool
}

type idleGoroutine struct {
	next  chan func() // closed: it ends
	since time.Time
}

// Go runs a function, which must not panic, on an idle or a new goroutine.
func (g *goroutines) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.idle) - 1
	if n < 0 {
		go g.work(f)
		return
	}
	g.idle[n].next <- f // has room
	g.idle = g.idle[:n]
}

func (g *goroutines) work(f func()) {
	w := &idleGoroutine{next: make(chan func(), 1)}
	for f != nil {
		f()
		g.wait(w)
		f = <-w.next
	}
}

func (g *goroutines) wait(w *idleGoroutine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		close(w.next)
		return
	}
	w.since = time.Now()
	g.idle = append(g.idle, w)
	if !g.sweeping {
		g.sweeping = true
		time.AfterFunc(goroutineIdleTime, g.sweep)
	}
}

func (g *goroutines) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(time.Now().Add(-goroutineIdleTime))
	if g.sweeping = len(g.idle) > 0; g.sweeping {
		time.AfterFunc(goroutineIdleTime, g.sweep)
	}
}

// Close ends the goroutines when they are idle.
func (g *goroutines) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.end(time.Now())
}

// end ends the goroutines that are idle since then.
func (g *goroutines) end(then time.Time) {
	for len(g.idle) > 0 && !g.idle[0].since.After(then) {
		close(g.idle[0].next)
		g.idle = g.idle[1:]
	}
}
