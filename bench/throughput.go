package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	defaultDuration = 30 * time.Second
	minDuration     = time.Second
	// stallLimit is how long nothing may arrive before the wait for the rest is given up. The first retries of a failed
	// delivery come after 10 and 30 s, so a minute of silence means that something is stuck.
	stallLimit = time.Minute
	drainPoll  = 100 * time.Millisecond
	// leftPoll is how often the database is asked what is left while the sink still misses some: seldom, for it counts rows.
	leftPoll = 2 * time.Second
)

// ThroughputOptions says what Throughput measures. Binary is required.
type ThroughputOptions struct {
	// Binary is the path of the postrider program; it runs as service and as sink.
	Binary string
	// Duration is how long events are published; default 30 s, at least 1 s.
	Duration time.Duration
	// Clients is the number of publishing connections, each with one request in flight; default 256.
	Clients int
	// Rate is how many events are published per second in an open loop; 0, the default, publishes as fast as answers come.
	Rate float64
	// EventBytes is the size of an event's JSON object; default 1,024.
	EventBytes int
	// DatabaseURL is a PostgreSQL to use. It is migrated, and events of a topic of this run stay in it. "" starts a private
	// one with all of its durability on, and removes it.
	DatabaseURL string
	// Subscriptions is how many event subscriptions want each event; default 1.
	Subscriptions int
	// Command is what the report says was run; "" prints the options that matter.
	Command string
}

func (o *ThroughputOptions) prepare() error {
	o.Duration = orDefault(o.Duration, defaultDuration)
	o.Clients = orDefault(o.Clients, defaultClients)
	o.EventBytes = orDefault(o.EventBytes, defaultEventBytes)
	o.Subscriptions = orDefault(o.Subscriptions, 1)
	if o.Command == "" {
		o.Command = fmt.Sprintf("postrider bench throughput --duration %s --clients %d --event-bytes %d --subscriptions %d", o.Duration, o.Clients, o.EventBytes, o.Subscriptions)
	}
	switch {
	case o.Binary == "":
		return errors.New("throughput: Binary is required")
	case o.Duration < minDuration:
		return fmt.Errorf("throughput: the duration must be %s or more, not %s", minDuration, o.Duration)
	case o.Clients < 1 || o.Subscriptions < 1 || o.Rate < 0:
		return errors.New("throughput: clients, subscriptions and rate must be positive")
	}
	return nil
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Throughput publishes to a postrider of its own, on this machine and in processes as users have them, and reports what was
// published and delivered per second, and whether every acknowledged event arrived, byte for byte. Progress goes to log: each
// second on a terminal, else every 5 s. Everything it started has ended when it returns.
//
// An error means that there is nothing to report: a process did not get ready or ended (with the last lines of its log), or
// nothing was accepted, or ctx ended. Events that were lost or left are no error but the report's: see ThroughputReport.Err.
func Throughput(ctx context.Context, o ThroughputOptions, log io.Writer) (report ThroughputReport, err error) {
	if err := o.prepare(); err != nil {
		return report, err
	}
	r, err := newRig(ctx, rigOptions{Binary: o.Binary, DatabaseURL: o.DatabaseURL}, log)
	if err != nil {
		return report, fmt.Errorf("throughput: %w", err)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	err = r.guarded(ctx, func(ctx context.Context) error {
		report, err = r.measure(ctx, o, log)
		return err
	})
	if err != nil {
		return report, fmt.Errorf("throughput: %w", err)
	}
	verdict, err := r.compare()
	if err != nil {
		return report, fmt.Errorf("throughput: %w", err)
	}
	report.judge(verdict)
	return report, nil
}

// measure is the run itself: publish, wait for the rest, count.
func (r *rig) measure(ctx context.Context, o ThroughputOptions, log io.Writer) (report ThroughputReport, err error) {
	if err := r.subscribe(ctx, o.Subscriptions); err != nil {
		return report, err
	}
	report = ThroughputReport{Command: o.Command, Machine: thisMachine(), EventBytes: o.EventBytes, Clients: o.Clients, Subscriptions: o.Subscriptions}
	if report.Settings, err = readSettings(ctx, r.conn); err != nil {
		return report, err
	}
	before := r.cpu()
	loaded, err := r.publishAndDrain(ctx, o, log)
	if err != nil {
		return report, err
	}
	report.CPUSeconds = used(before, r.cpu())
	stats, err := r.sinkAPI.sinkStats(ctx)
	if err != nil {
		return report, err
	}
	counted, err := r.count(ctx)
	if err != nil {
		return report, err
	}
	report.fill(loaded, stats, counted)
	return report, nil
}

// publishAndDrain returns when nothing is left to deliver, or nothing has arrived for a minute.
func (r *rig) publishAndDrain(ctx context.Context, o ThroughputOptions, log io.Writer) (loaded LoadReport, err error) {
	ledger, err := OpenLedger(r.publishedPath())
	if err != nil {
		return loaded, err
	}
	load, err := NewLoad(LoadOptions{
		URL: r.publishURL(r.topic), Key: r.key, Clients: o.Clients, Rate: o.Rate, Duration: o.Duration, EventBytes: o.EventBytes, Ledger: ledger,
	})
	if err != nil {
		return loaded, errors.Join(err, ledger.Close())
	}
	stopProgress := r.progress(ctx, load, o.Subscriptions, log)
	defer stopProgress()
	loaded, err = load.Run(ctx)
	if err = errors.Join(err, ledger.Close()); err != nil {
		return loaded, err
	}
	if loaded.Published == 0 {
		return loaded, r.service.explain(fmt.Errorf("not one event was accepted: %w", loaded.FirstError))
	}
	return loaded, r.drain(ctx, loaded.Published*int64(o.Subscriptions))
}

// drain asks the sink, which costs nearly nothing, until all that is owed has arrived, and then the database until it has
// recorded that.
func (r *rig) drain(ctx context.Context, owed int64) error {
	changed, asked, seen := time.Now(), time.Now(), int64(-1)
	for {
		stats, err := r.sinkAPI.sinkStats(ctx)
		if err != nil {
			return err
		}
		if stats.Received != seen {
			seen, changed = stats.Received, time.Now()
		}
		if stats.Distinct >= owed || time.Since(asked) >= leftPoll {
			asked = time.Now()
			left, err := r.left(ctx)
			if err != nil || left == 0 || time.Since(changed) > stallLimit {
				return err
			}
		}
		if !pause(ctx, drainPoll) {
			return ctx.Err()
		}
	}
}
