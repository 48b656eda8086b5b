package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// trial is one scenario, on a rig of its own.
type trial struct {
	*rig
	o        NoisyOptions
	settings Settings
	result   NoisyResult

	baseline, noisy span
	again           span // of topics only
}

// try runs the scenario and fills in its result.
func (t *trial) try(ctx context.Context, log io.Writer) (err error) {
	if t.rig, err = newRig(ctx, rigOptions{Binary: t.o.Binary, Label: t.result.Scenario}, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if t.settings, err = readSettings(ctx, t.conn); err != nil {
		return err
	}
	run := t.runNoise
	if t.result.Scenario == ScenarioTopics {
		run = t.runTopics
	}
	if err := t.guarded(ctx, run); err != nil {
		return err
	}
	verdict, err := t.compare()
	if err != nil {
		return err
	}
	arrivals, err := ReadArrivals(t.arrivalsPath())
	if err != nil {
		return err
	}
	t.result.judge(verdict)
	t.result.measure(arrivals, t.baseline, t.noisy)
	if t.result.Again != nil {
		t.result.measureAgain(arrivals, t.again)
	}
	return nil
}

// runNoise measures the others, then the others beside the noise, under one load without a gap.
func (t *trial) runNoise(ctx context.Context) error {
	targets, err := t.spread(ctx, "bench", t.o.Topics, t.o.Subscriptions)
	if err != nil {
		return err
	}
	n, err := t.prepareNoise(ctx)
	if err != nil {
		return err
	}
	begins := n.at
	if begins.IsZero() {
		begins = time.Now().Add(t.o.Baseline + t.warmUp())
	}
	err = t.during(ctx, targets, begins.Add(t.o.Duration+loadTail), func(ctx context.Context) error {
		return t.compareTo(ctx, n, begins)
	})
	if err != nil {
		return err
	}
	return t.account(ctx)
}

func (t *trial) warmUp() time.Duration { return t.o.Baseline / warmUpShare }

// compareTo marks the phases while the load runs: the baseline up to the moment when the noise begins, then the noise.
func (t *trial) compareTo(ctx context.Context, n *noise, begins time.Time) error {
	more, err := t.goesOn(n)
	if err != nil {
		return err
	}
	if !waitUntil(ctx, begins.Add(-t.o.Baseline)) {
		return ctx.Err()
	}
	t.say("baseline, %s", t.o.Baseline)
	before := t.cpu()
	t.baseline.from = time.Now()
	if !waitUntil(ctx, begins) {
		return ctx.Err()
	}
	t.noisy.from = time.Now()
	t.baseline.to = t.noisy.from
	t.noisy.to = t.noisy.from.Add(t.o.Duration)
	now := t.cpu()
	t.result.Baseline.CPUSeconds = used(before, now)
	t.say("noise, %s", t.o.Duration)
	if err := t.begin(ctx, n); err != nil {
		return err
	}
	if err := more(ctx); err != nil {
		return err
	}
	if !waitUntil(ctx, t.noisy.to) {
		return ctx.Err()
	}
	t.result.Noisy.CPUSeconds = used(now, t.cpu())
	return t.setNoise(ctx, n, true) // what it is still owed is not waited for
}

// runTopics measures one topic, then as many as asked for, each with one event subscription, then the one again. The
// many are made after the baseline, so that it knows nothing of them. Making them takes a while, in which the machine
// may have become another: what the one topic then gets tells.
func (t *trial) runTopics(ctx context.Context) error {
	one, err := t.spread(ctx, "one", 1, 1)
	if err != nil {
		return err
	}
	if err := t.measureAlone(ctx, one, t.o.Baseline, &t.baseline, &t.result.Baseline); err != nil {
		return err
	}
	many, err := t.spread(ctx, "many", t.o.ManyTopics, t.o.ManyTopics)
	if err != nil {
		return err
	}
	t.result.Topics, t.result.Subscriptions = t.o.ManyTopics, t.o.ManyTopics
	if err := t.measureAlone(ctx, many, t.o.Duration, &t.noisy, &t.result.Noisy); err != nil {
		return err
	}
	t.result.Again = &PhaseReport{}
	if err := t.measureAlone(ctx, one, t.o.Baseline, &t.again, t.result.Again); err != nil {
		return err
	}
	return t.countOthers(ctx)
}

// measureAlone puts load on the targets, after a warm-up measures for d, and waits until all is delivered.
func (t *trial) measureAlone(
	ctx context.Context, targets []Target, d time.Duration, phase *span, report *PhaseReport,
) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	begins := time.Now().Add(t.warmUp())
	return t.during(ctx, targets, begins.Add(d+loadTail), func(ctx context.Context) error {
		if !waitUntil(ctx, begins) {
			return ctx.Err()
		}
		t.say("%s, %s", counted(len(targets), "topic"), d)
		before := t.cpu()
		phase.from = time.Now()
		phase.to = phase.from.Add(d)
		if !waitUntil(ctx, phase.to) {
			return ctx.Err()
		}
		report.CPUSeconds = used(before, t.cpu())
		return nil
	})
}

// during has the load on the targets until that moment while do runs, then waits until all of it was delivered.
func (t *trial) during(
	parent context.Context, targets []Target, until time.Time, do func(context.Context) error,
) error {
	ledger, err := OpenLedger(t.publishedPath())
	if err != nil {
		return err
	}
	load, err := NewLoad(LoadOptions{
		Targets: targets, Clients: t.o.Clients, Rate: t.o.Rate, Duration: time.Until(until), EventBytes: t.o.EventBytes,
		Ledger: ledger,
	})
	if err != nil {
		return errors.Join(err, ledger.Close())
	}
	stopProgress := t.progress(parent, load.Published, 1)
	defer stopProgress()
	loaded, err := beside(parent, load, do)
	if err = errors.Join(err, ledger.Close()); err != nil {
		return err
	}
	t.result.add(loaded)
	if loaded.Published == 0 {
		return t.service.explain(fmt.Errorf("not one event was accepted: %w", loaded.FirstError))
	}
	return t.drain(parent, t.result.Published)
}

// beside runs do beside the load. When do fails, the load is cut.
func beside(ctx context.Context, load *Load, do func(context.Context) error) (loaded LoadReport, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var loadErr error
	var running sync.WaitGroup
	running.Go(func() { loaded, loadErr = load.Run(ctx) })
	if err = do(ctx); err != nil {
		cancel()
	}
	running.Wait()
	if err == nil {
		err = loadErr
	}
	return loaded, err
}

// countOthers asks the database what became of the others' deliveries.
func (t *trial) countOthers(ctx context.Context) error {
	counted, err := t.count(ctx)
	if err != nil {
		return err
	}
	t.result.Delivered, t.result.Ended, t.result.Left = counted.Delivered, counted.Ended+counted.DeadLettered, counted.Left
	return nil
}

// waitUntil waits for a moment; false when ctx ended.
func waitUntil(ctx context.Context, moment time.Time) bool { return pause(ctx, time.Until(moment)) }
