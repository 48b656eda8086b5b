package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// progress prints how far the load and its deliveries are until the function it returns is called. What the sink
// refuses counts where it accepts less.
func (r *rig) progress(ctx context.Context, published func() int64, subscriptions int) (stop func()) {
	arrived := func(s SinkStats) int64 { return max(s.Distinct, s.TurnedAway) }
	before, _ := r.sinkAPI.sinkStats(ctx) // the run itself reports a sink that is gone
	started, last := time.Now(), sample{}
	return ticking(ctx, r.log, func() string {
		stats, err := r.sinkAPI.sinkStats(ctx)
		if err != nil {
			return ""
		}
		now := sample{after: time.Since(started), published: published(), received: arrived(stats) - arrived(before)}
		defer func() { last = now }()
		return now.line(last, subscriptions)
	})
}

// ticking prints a line now and then, unless it is empty, until the function it returns is called: for a person at a
// terminal each second, in a log every 5 s.
func ticking(ctx context.Context, log io.Writer, line func() string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() {
		interval := 5 * time.Second
		if isTerminal(log) {
			interval = time.Second
		}
		for pause(ctx, interval) {
			if text := line(); text != "" {
				fmt.Fprintln(log, text)
			}
		}
	})
	return func() {
		cancel()
		printing.Wait()
	}
}

// inParallel calls do for 0 … n-1, that many at once. After the first error, which it returns, it begins no more.
func inParallel(ctx context.Context, atOnce, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(atOnce, n) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// sample is how far a run was at one moment.
type sample struct {
	after               time.Duration
	published, received int64
}

func (s sample) line(before sample, subscriptions int) string {
	seconds := max((s.after - before.after).Seconds(), 0.001)
	perSecond := func(now, then int64) float64 { return float64(now-then) / seconds }
	return fmt.Sprintf("%4.0f s  published %d (%.0f/s)  delivered %d (%.0f/s)  waiting %d", s.after.Seconds(),
		s.published, perSecond(s.published, before.published), s.received, perSecond(s.received, before.received),
		max(s.published*int64(subscriptions)-s.received, 0))
}

// lockedWriter takes whole lines from several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Writer.Write(p)
}

func isTerminal(w io.Writer) bool {
	if locked, ok := w.(*lockedWriter); ok {
		w = locked.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
