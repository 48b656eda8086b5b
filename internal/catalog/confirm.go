package catalog

import (
	"context"
	"sync"
	"time"

	"postrider/internal/access"
)

// confirmRate bounds the reloads for unknown topics and keys. The first few are immediate. Clients that guess share ten
// reloads a second.
var confirmRate = access.Bucket{Burst: 20, Every: 100 * time.Millisecond}

// confirmer lets concurrent callers share a reload of the catalog.
type confirmer struct {
	reload  func(context.Context) error
	running sync.Mutex // held while a reload waits or runs: there is one at a time
	bucket  time.Time  // of confirmRate; under running

	mu   sync.Mutex
	next *confirmation // the one that has not begun; nil = none
}

type confirmation struct {
	done chan struct{}
	err  error
}

// confirm returns once the catalog in memory is one that was read after the call.
func (c *confirmer) confirm(ctx context.Context) error {
	next := c.join()
	select {
	case <-next.done:
		return next.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the reload that has not begun, or starts one. It does not end with the caller: others may wait for it.
func (c *confirmer) join() *confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &confirmation{done: make(chan struct{})}
		go c.run()
	}
	return c.next
}

func (c *confirmer) run() {
	c.running.Lock()
	defer c.running.Unlock()
	if wait := confirmRate.Wait(c.bucket, time.Now()); wait > 0 {
		<-time.After(wait)
	}
	c.bucket = confirmRate.Take(c.bucket, time.Now())
	c.mu.Lock() // later callers need a later reload
	current := c.next
	c.next = nil
	c.mu.Unlock()
	current.err = c.reload(context.Background())
	close(current.done)
}
