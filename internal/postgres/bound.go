package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Bound limits how many uses of something run at a time on this node: all together, and those of each credential.
type Bound struct {
	uses string // in the plural, for messages
	node chan struct{}
	each int

	mu  sync.Mutex
	own map[string]*ownPlaces
}

// ownPlaces are the places of one credential that has uses or waits for them.
type ownPlaces struct {
	taken chan struct{}
	users int
}

// NewBound returns a Bound of node uses, and at most each of one credential. uses names them in messages.
func NewBound(uses string, node, each int) *Bound {
	return &Bound{uses: uses, node: make(chan struct{}, node), each: each, own: map[string]*ownPlaces{}}
}

// BusyWait is how long Take waits for a place, and after which its caller should try again.
const BusyWait = 5 * time.Second

// BusyError rejects a use because too many run. Its message may be shown to the client.
type BusyError struct {
	// Own reports that the uses are the caller's own.
	Own     bool
	message string
}

// Error returns the message.
func (e *BusyError) Error() string { return e.message }

// Take takes a place for a use of a credential. Its caller calls release when the use has ended. *BusyError after 5 s
// without a place; the error of ctx.
func (b *Bound) Take(ctx context.Context, credential string) (release func(), err error) {
	own := b.enter(credential)
	busy := time.NewTimer(BusyWait)
	defer busy.Stop()
	for _, places := range []chan struct{}{own.taken, b.node} { // waiting for its own place takes none of the node's
		select {
		case places <- struct{}{}:
			continue
		case <-busy.C:
			err = b.busy(places == own.taken)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if places == b.node {
			<-own.taken
		}
		b.leave(credential, own)
		return nil, err
	}
	return func() {
		<-b.node
		<-own.taken
		b.leave(credential, own)
	}, nil
}

func (b *Bound) busy(own bool) error {
	if own {
		return &BusyError{Own: true, message: fmt.Sprintf(
			"at most %d of your %s at a time on a node; retry when one has ended", b.each, b.uses)}
	}
	return &BusyError{message: fmt.Sprintf("%d %s run on this node, the most; retry later", cap(b.node), b.uses)}
}

func (b *Bound) enter(credential string) *ownPlaces {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.own[credential]
	if own == nil {
		own = &ownPlaces{taken: make(chan struct{}, b.each)}
		b.own[credential] = own
	}
	own.users++
	return own
}

func (b *Bound) leave(credential string, own *ownPlaces) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(b.own, credential)
	}
}
