//go:build unix

package e2e

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// faultWatch observes pending work, and when the work of dead nodes is reclaimed.
type faultWatch struct {
	db      *database
	cancel  context.CancelFunc
	working sync.WaitGroup // the count of unfinished deliveries
	kills   sync.WaitGroup

	unfinished atomic.Int64
	waiting    atomic.Int64 // dead nodes with work that is not reclaimed yet
}

func startFaultWatch(t *testing.T, db *database) *faultWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &faultWatch{db: db, cancel: cancel}
	w.working.Go(func() {
		for ctx.Err() == nil {
			var n int64
			if w.db.pool.QueryRow(ctx, unfinishedQuery).Scan(&n) == nil {
				w.unfinished.Store(n)
			}
			<-time.After(10 * pollTime)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *faultWatch) stop() {
	w.cancel()
	w.working.Wait()
	w.kills.Wait()
}

// follow measures how the others go on after a kill.
func (w *faultWatch) follow(ctx context.Context, k *faultKill, name string, sink *faultSink) {
	w.waiting.Add(1)
	w.kills.Go(func() {
		defer w.waiting.Add(-1)
		for sink.latest.Load() < k.at.UnixNano() && time.Since(k.at) < patience {
			<-time.After(pollTime)
		}
		k.next = time.Since(k.at)
		for n := 1; n > 0 && time.Since(k.at) < patience; <-time.After(10 * pollTime) {
			if err := w.db.pool.QueryRow(ctx, runningQuery, name).Scan(&n); err != nil {
				return
			}
		}
		k.takenUp = time.Since(k.at)
	})
}
