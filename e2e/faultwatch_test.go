//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// faultWatch observes pending work, and when the work of dead nodes is reclaimed.
type faultWatch struct {
	db      *database
	oldest  func() time.Time
	cancel  context.CancelFunc
	working sync.WaitGroup

	unfinished atomic.Int64
	mu         sync.Mutex
	orphans    map[string]*faultKill // by the dead node's name
	failed     error
}

func startFaultWatch(t *testing.T, db *database, oldest func() time.Time) *faultWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &faultWatch{db: db, oldest: oldest, cancel: cancel, orphans: map[string]*faultKill{}}
	w.working.Go(func() {
		for ctx.Err() == nil {
			if err := w.look(ctx); err != nil && ctx.Err() == nil {
				w.mu.Lock()
				w.failed = err
				w.mu.Unlock()
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
}

// look is one observation. The work of a dead node is reclaimed when no running job has its name.
func (w *faultWatch) look(ctx context.Context) error {
	const query = `SELECT coalesce(array_agg(DISTINCT attempted_by[array_upper(attempted_by, 1)]), '{}'), (` +
		unfinishedQuery + `) FROM postrider_internal.river_job WHERE state = 'running'`
	w.mu.Lock()
	names := make([]string, 0, len(w.orphans))
	for name := range w.orphans {
		names = append(names, name)
	}
	w.mu.Unlock()
	var busy []string
	var unfinished int64
	if err := w.db.pool.QueryRow(ctx, query).Scan(&busy, &unfinished); err != nil {
		return fmt.Errorf("look what the dead had in hand: %w", err)
	}
	w.unfinished.Store(unfinished)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if k := w.orphans[name]; !slices.Contains(busy, name) {
			k.takenUp = time.Since(k.at)
			if since := w.oldest(); since.After(k.at) {
				k.takenUp = time.Since(since)
			}
			delete(w.orphans, name)
		}
	}
	return nil
}

// follow measures how the others go on after a kill.
func (w *faultWatch) follow(k *faultKill, name string, sink *faultSink) {
	if name != "" && one[int](w.db, runningQuery, name) > 0 {
		w.mu.Lock()
		w.orphans[name] = k
		w.mu.Unlock()
	}
	w.working.Go(func() {
		for sink.latest.Load() < k.at.UnixNano() && time.Since(k.at) < patience {
			<-time.After(pollTime)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		k.next = time.Since(k.at)
	})
}

// waiting is how many of the dead have work that is not reclaimed yet.
func (w *faultWatch) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.orphans)
}
