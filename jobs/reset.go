package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postrider/jobs/queue"
)

// era is the time between two resets. Its end cuts the attempts that began in it.
type era struct {
	began time.Time
	ctx   context.Context //nolint:containedctx // of its attempts
	end   context.CancelCauseFunc
}

func newEra(within context.Context) *era {
	ctx, end := context.WithCancelCause(within)
	return &era{time.Now(), ctx, end}
}

// errReset is the cause of the end of an era, unless the engine stops.
var errReset = errors.New("the state was reset")

// eraOf is the context of the era in which a publish of this node committed the work.
func (d *deliverer) eraOf(work *queue.Work) context.Context {
	now := d.era.Load()
	if !work.LoadedAt.Before(now.began) {
		return now.ctx
	}
	over, end := context.WithCancelCause(d.requests)
	end(errReset)
	return over
}

const (
	resetPoll = time.Millisecond
	// resetWait is longer than a cut request takes. Only an attempt that waits for a token of OAuth takes longer, and it
	// sends nothing afterwards.
	resetWait = 2 * time.Second
)

// Reset replaces the rows of the database by restore, and ends what this node does for the rows before: it cuts the
// requests in flight and forgets how endpoints responded. When it returns, no request of an earlier event is sent or in
// progress. The caller lets no publish begin meanwhile. It is for postrider dev, which is the only node.
func (e *Engine) Reset(ctx context.Context, restore func(context.Context) error) error {
	if err := restore(ctx); err != nil {
		return err
	}
	d := e.deliverer
	d.Handoff.Drop()
	earlier := d.Active.IDs()
	d.era.Swap(newEra(d.requests)).end(errReset)
	if err := d.cache.Renew(ctx); err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	for until := time.Now().Add(resetWait); d.Active.HasAny(earlier) && time.Now().Before(until); {
		if queue.Pause(ctx, resetPoll); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	d.Gate.Forget(func(int64) bool { return false })
	d.Loader.Forget()
	d.Recorder.Forget()
	d.Traffic.Forget()
	if _, err := d.Traffic.SampleTraffic(ctx); err != nil {
		return err
	}
	return nil
}
