package catalog

import (
	"context"
	"sync"
	"time"

	"postrider/policy"
)

// confirming bounds how often no's are confirmed with the database. Who has a new topic or key meets a no once, whoever
// guesses meets one at each try: the first few look at once, a crowd looks ten times a second and not once each.
var confirming = policy.Bucket{Burst: 20, Every: 100 * time.Millisecond}

// confirmer lets all who doubt the catalogue in memory share one look at the newest.
type confirmer struct {
	reload func(context.Context) error
	// looking is held while a look waits or runs: there is one at a time.
	looking sync.Mutex
	full    time.Time // of confirming; under looking

	mu   sync.Mutex
	next *look // the one that has not begun, if anybody waits for one
}

type look struct {
	done chan struct{}
	err  error
}

// confirm returns once the catalogue in memory is one that was read after the call.
func (c *confirmer) confirm(ctx context.Context) error {
	l := c.join()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join finds the look that has not begun, or starts one. It ends by itself: whoever came first may go away.
func (c *confirmer) join() *look {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &look{done: make(chan struct{})}
		go c.look()
	}
	return c.next
}

func (c *confirmer) look() {
	c.looking.Lock()
	defer c.looking.Unlock()
	if wait := confirming.Wait(c.full, time.Now()); wait > 0 {
		<-time.After(wait)
	}
	c.full = confirming.Take(c.full, time.Now())
	l := c.begin()
	l.err = c.reload(context.Background())
	close(l.done)
}

// begin: who comes from here on asks for a look that sees more than this one.
func (c *confirmer) begin() *look {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.next
	c.next = nil
	return l
}
