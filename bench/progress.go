package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress prints a line now and then until the function it returns is called: for a person at a terminal each second, in
// a log every 5 s.
func (r *rig) progress(ctx context.Context, load *Load, subscriptions int, log io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() {
		interval := 5 * time.Second
		if isTerminal(log) {
			interval = time.Second
		}
		started, before := time.Now(), sample{}
		for pause(ctx, interval) {
			stats, err := r.sinkAPI.sinkStats(ctx)
			if err != nil {
				continue // the run itself reports a sink that is gone
			}
			now := sample{after: time.Since(started), published: load.Published(), received: stats.Distinct}
			fmt.Fprintln(log, now.line(before, subscriptions))
			before = now
		}
	})
	return func() {
		cancel()
		printing.Wait()
	}
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

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
