package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// stallLimit is how long nothing may arrive before the wait for the rest is given up. The first retries of a failed
	// delivery come after 10 and 30 s, so a minute of silence means that something is stuck.
	stallLimit = time.Minute
	drainPoll  = 100 * time.Millisecond
	// leftPoll is how often the database is asked what is left while the sink still misses some: seldom, for it counts
	// rows.
	leftPoll = 2 * time.Second
)

// run is one run of a scenario, on a rig of its own.
type run struct {
	*rig
	o        Options
	scenario scenario
	report   Report
	phases   []phase
	owed     int64 // deliveries of what was accepted so far
}

// phase is a stretch of load that is measured. What a scenario says of it is in the first group.
type phase struct {
	name    string
	target  Target
	paused  bool // nothing is delivered
	refused bool // the sink acknowledges nothing
	sql     bool // published by SQL
	// also is done beside the load; nil = nothing.
	also   func(ctx context.Context) error
	window bool // deliveries are counted while events are published: the last retries come long after

	sent    span // from the first publish to the last answer; of nothing published, the phase
	figures Figures
}

// look is what processes and database had done at one moment.
type look struct {
	cpu    map[string]float64
	weight weight
	rows   rows
	sink   SinkStats
}

// try runs the scenario and fills in its report.
func (b *run) try(ctx context.Context, log io.Writer) (err error) {
	options := rigOptions{Binary: b.o.Binary, DatabaseURL: b.o.DatabaseURL, Label: b.o.Scenario}
	if !b.o.NoCeilings {
		options.Before = b.measureCeilings
	}
	if b.rig, err = newRig(ctx, options, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.report.Settings, err = readSettings(ctx, b.conn); err != nil {
		return err
	}
	if err := b.guarded(ctx, func(ctx context.Context) error { return b.scenario.run(b, ctx) }); err != nil {
		return err
	}
	return b.conclude(ctx)
}

// conclude fills in what is known once everything has arrived.
func (b *run) conclude(ctx context.Context) error {
	counted, err := b.count(ctx)
	if err != nil {
		return err
	}
	verdict, err := b.verdict(ctx)
	if err != nil {
		return err
	}
	arrivals, err := ReadArrivals(b.arrivalsPath())
	if err != nil {
		return err
	}
	b.report.count(counted)
	b.report.judge(verdict)
	b.report.conclude(b.phases, arrivals)
	return nil
}

// verdict stops the sink, which completes its files.
func (b *run) verdict(ctx context.Context) (Verdict, error) {
	if b.scenario.verdict != nil {
		return b.scenario.verdict(b, ctx)
	}
	return b.compare()
}

// measure puts the load on the phase's target, waits until all of it is delivered, and notes what it took.
func (b *run) measure(ctx context.Context, p phase) error {
	b.say("%s, %s", p.name, b.o.Duration)
	before, err := b.begin(ctx)
	if err != nil {
		return err
	}
	loaded, err := b.publishAndDrain(ctx, p)
	if err != nil {
		return err
	}
	p.sent = span{loaded.StartedAt, loaded.EndedAt}
	p.figures.publish(loaded)
	if p.paused {
		p.figures.LatencyMs = loaded.Latency
	}
	return b.end(ctx, p, before)
}

// measureDrain notes what it takes to deliver what is owed, once start lets it.
func (b *run) measureDrain(ctx context.Context, name string, start func(context.Context) error) error {
	b.say("%s", name)
	before, err := b.begin(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := start(ctx); err != nil {
		return err
	}
	waiting := before.rows.Left
	stop := b.progress(ctx, func() int64 { return waiting }, 1)
	defer stop()
	if err := b.awaitArrivals(ctx, (before.sink.Distinct+b.owed)/2); err != nil {
		return err
	}
	if err := b.checkpoint(ctx); err != nil {
		return err
	}
	if err := b.drain(ctx, b.owed); err != nil {
		return err
	}
	return b.end(ctx, phase{name: name, sent: span{began, time.Now()}}, before)
}

// begin lets the database finish with what was before, and looks.
func (b *run) begin(ctx context.Context) (look, error) {
	if len(b.phases) > 0 {
		if err := b.settle(ctx); err != nil {
			return look{}, err
		}
	}
	return b.look(ctx)
}

func (b *run) look(ctx context.Context) (l look, err error) {
	if l.sink, err = b.sinkAPI.sinkStats(ctx); err != nil {
		return l, err
	}
	if l.rows, err = b.count(ctx); err != nil {
		return l, err
	}
	if l.weight, err = b.weigh(ctx); err != nil {
		return l, err
	}
	forgetPeak(b.service.pid())
	l.cpu = b.cpu()
	return l, nil
}

// end notes the phase.
func (b *run) end(ctx context.Context, p phase, before look) error {
	cpu := b.cpu() // counting rows costs some
	after, err := b.look(ctx)
	if err != nil {
		return err
	}
	p.figures.Phase, p.figures.RSSPeakMB = p.name, peakMB(b.service.pid())
	p.figures.CPUSeconds = used(before.cpu, cpu)
	p.figures.deliver(before, after, p.sent.from)
	if p.paused {
		p.figures.each(before, after, after.rows.Left-before.rows.Left)
	} else {
		p.figures.each(before, after, after.rows.done()-before.rows.done())
	}
	b.phases = append(b.phases, p)
	return nil
}

// publishAndDrain has the load on the phase's target, with a checkpoint in the middle, and returns when nothing is left
// to deliver, or nothing has arrived for a minute.
func (b *run) publishAndDrain(ctx context.Context, p phase) (loaded LoadReport, err error) {
	ledger, err := OpenLedger(b.publishedPath())
	if err != nil {
		return loaded, err
	}
	database := ""
	if p.sql {
		database = b.databaseURL
	}
	load, err := NewLoad(LoadOptions{
		Targets: []Target{p.target}, DatabaseURL: database, Clients: b.o.Clients, Rate: b.o.Rate, Duration: b.o.Duration,
		EventBytes:       b.o.EventBytes,
		EventsPerRequest: b.o.EventsPerRequest, Ledger: ledger,
	})
	if err != nil {
		return loaded, errors.Join(err, ledger.Close())
	}
	stop := b.progress(ctx, load.Published, len(b.prefixes))
	defer stop()
	loaded, err = beside(ctx, load, func(ctx context.Context) error {
		began := time.Now()
		if p.also != nil {
			if err := p.also(ctx); err != nil {
				return err
			}
		}
		if !pause(ctx, b.o.Duration/2-time.Since(began)) {
			return nil
		}
		return b.checkpoint(ctx)
	})
	b.report.add(loaded)
	b.owed += loaded.Published * int64(len(b.prefixes))
	switch err = errors.Join(err, ledger.Close()); {
	case err != nil:
		return loaded, err
	case loaded.Published == 0:
		return loaded, b.service.explain(fmt.Errorf("not one event was accepted: %w", loaded.FirstError))
	case p.paused:
		return loaded, nil
	}
	return loaded, b.drain(ctx, b.owed)
}

// checkpoint has the database write everything out, as it does every few minutes: a run of 30 s without one would look
// better than an hour.
func (b *run) checkpoint(ctx context.Context) error {
	made, err := b.rig.checkpoint(ctx)
	if made {
		b.report.Checkpoints++
	}
	return err
}

// drain asks the sink, which costs nearly nothing, until all that is owed has arrived, and then the database until it
// has recorded that. It gives up when nothing has arrived for a minute.
func (r *rig) drain(ctx context.Context, owed int64) error {
	asked := time.Now()
	return r.poll(ctx, func(stats SinkStats) (bool, error) {
		if stats.Distinct < owed && time.Since(asked) < leftPoll {
			return false, nil
		}
		asked = time.Now()
		left, err := r.left(ctx)
		return left == 0, err
	})
}

// awaitArrivals waits until the sink has that many.
func (r *rig) awaitArrivals(ctx context.Context, n int64) error {
	return r.poll(ctx, func(stats SinkStats) (bool, error) { return stats.Distinct >= n, nil })
}

// poll asks the sink until enough says so, or nothing has arrived for a minute.
func (r *rig) poll(ctx context.Context, enough func(SinkStats) (bool, error)) error {
	changed, seen := time.Now(), int64(-1)
	for {
		stats, err := r.sinkAPI.sinkStats(ctx)
		if err != nil {
			return err
		}
		if got := stats.Received + stats.TurnedAway; got != seen {
			seen, changed = got, time.Now()
		}
		if done, err := enough(stats); done || err != nil || time.Since(changed) > stallLimit {
			return err
		}
		if !pause(ctx, drainPoll) {
			return ctx.Err()
		}
	}
}
