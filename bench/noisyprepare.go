package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	noiseTopic = "noise"
	// nameLimit is what the five digits in names hold: all targets of a load must be of the same length.
	nameLimit = 100_000
	// noiseClients are connections enough for the noise's rate while the others' load queues before them.
	noiseClients = 16
	// retriesPolicy is the copy of the retry policy with a first step of an hour.
	retriesPolicy = "bench-retries"
	retriesPoll   = 200 * time.Millisecond
	// scheduleTime and scheduleRate say how long it takes to give retries their moment and to vacuum after it, amply.
	scheduleTime = 3 * time.Second
	scheduleRate = 10_000
)

// noise is the bad endpoints' part of a scenario: event subscriptions of one topic.
type noise struct {
	names   []string
	targets []Target
	at      time.Time // when it begins by itself; zero: when it is resumed
}

// spread makes event subscriptions at paths of their own on that many topics, in parallel, and returns a target for
// each.
func (t *trial) spread(ctx context.Context, name string, topics, subscriptions int) ([]Target, error) {
	keys, names := make([]string, topics), make([]string, topics)
	err := t.each(ctx, "topics made", topics, func(ctx context.Context, i int) (err error) {
		names[i] = fmt.Sprintf("%s-%05d", name, i)
		keys[i], err = t.api.createTopic(ctx, names[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	targets := make([]Target, subscriptions)
	err = t.each(ctx, "event subscriptions made", subscriptions, func(ctx context.Context, i int) error {
		sub, topic := fmt.Sprintf("sub-%05d", i), names[i%topics]
		subject := "/" + sub + "/"
		targets[i] = Target{URL: t.publishURL(topic), Key: keys[i%topics], Subject: subject + "load", Prefix: sub + "/"}
		return t.api.createSubscription(ctx, topic, sub,
			subscription{EndpointURL: t.sinkAPI.base + "/" + sub, Filter: wanting(subject)})
	})
	t.counted = append(t.counted, names...)
	t.result.Topics, t.result.Subscriptions = topics, subscriptions
	return targets, err
}

// prepareNoise brings the noise to the point where one call, or the clock, sets it going.
func (t *trial) prepareNoise(ctx context.Context) (*noise, error) {
	t.result.Noise = NoiseReport{Endpoints: 1, Policy: t.o.Policy}
	switch t.result.Scenario {
	case ScenarioHang20:
		t.result.Noise.Endpoints = t.o.Endpoints
		return t.prepareHang(ctx, t.o.OwedEach)
	case ScenarioRetries:
		return t.prepareRetries(ctx)
	default:
		return t.prepareHang(ctx, t.o.Owed)
	}
}

// prepareHang owes each of the endpoints that hang as many deliveries, all of them on hold.
func (t *trial) prepareHang(ctx context.Context, owedEach int) (*noise, error) {
	n, err := t.subscribeNoise(ctx, t.o.Policy, func(i int) string { return fmt.Sprintf("/hang-%05d", i) })
	if err != nil {
		return nil, err
	}
	if err := t.setNoise(ctx, n, true); err != nil {
		return nil, err
	}
	if err := t.fill(ctx, n, owedEach); err != nil {
		return nil, err
	}
	return n, t.settle(ctx)
}

// prepareRetries has every first attempt fail, and then gives all retries one moment. The moment is set before the
// baseline, so that no row is touched while it is measured.
func (t *trial) prepareRetries(ctx context.Context) (*noise, error) {
	if err := t.copyPolicy(ctx, t.o.Policy, retriesPolicy, `{"steps":["1 hour"],"jitter_fraction":0}`); err != nil {
		return nil, err
	}
	n, err := t.subscribeNoise(ctx, retriesPolicy, func(int) string { return "/status/503" })
	if err != nil {
		return nil, err
	}
	if err := t.fill(ctx, n, t.o.Retries); err != nil {
		return nil, err
	}
	id, err := t.subscriptionID(ctx, noiseTopic, n.names[0])
	if err != nil {
		return nil, err
	}
	n.at, err = t.scheduleRetries(ctx, id)
	return n, err
}

// subscribeNoise makes the noise's topic and event subscriptions, with what their endpoints' paths are.
func (t *trial) subscribeNoise(ctx context.Context, policy string, path func(i int) string) (*noise, error) {
	key, err := t.api.createTopic(ctx, noiseTopic)
	if err != nil {
		return nil, err
	}
	n := &noise{}
	for i := range t.result.Noise.Endpoints {
		name := fmt.Sprintf("noise-%05d", i)
		n.names = append(n.names, name)
		n.targets = append(n.targets, Target{URL: t.publishURL(noiseTopic), Key: key, Subject: "/" + name + "/load"})
	}
	return n, t.each(ctx, "bad endpoints made", len(n.names), func(ctx context.Context, i int) error {
		return t.api.createSubscription(ctx, noiseTopic, n.names[i], subscription{
			EndpointURL: t.sinkAPI.base + path(i), RetryPolicy: &retryPolicy{policy}, Filter: wanting("/" + n.names[i] + "/"),
		})
	})
}

// setNoise pauses or resumes all of the noise's event subscriptions.
func (t *trial) setNoise(ctx context.Context, n *noise, paused bool) error {
	return inParallel(ctx, creators, len(n.names), func(ctx context.Context, i int) error {
		return t.api.setPaused(ctx, noiseTopic, n.names[i], paused)
	})
}

// begin sets the noise going, unless the clock does.
func (t *trial) begin(ctx context.Context, n *noise) error {
	if !n.at.IsZero() {
		return nil
	}
	return t.setNoise(ctx, n, false)
}

// goesOn prepares the events that are published for the noise while it lasts; it returns what publishes them.
func (t *trial) goesOn(n *noise) (func(context.Context) error, error) {
	if !n.at.IsZero() {
		return func(context.Context) error { return nil }, nil
	}
	load, err := NewLoad(LoadOptions{
		Targets: n.targets, Clients: noiseClients, Rate: t.o.NoiseRate, Duration: t.o.Duration, EventBytes: fillBytes,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		loaded, err := load.Run(ctx)
		t.result.Noise.Published += loaded.Published
		return err
	}, nil
}

// fill publishes that many small events for each of the noise's event subscriptions.
func (t *trial) fill(ctx context.Context, n *noise, each int) (err error) {
	t.result.Noise.Owed, err = t.rig.fill(ctx, n.targets, each)
	t.result.Noise.Published = t.result.Noise.Owed
	return err
}

// awaitRetries waits until all that is owed has failed and is far from its next attempt. A minute without a step means
// that the policy does not retry, or holds.
func (t *trial) awaitRetries(ctx context.Context, subscription, want int64) error {
	const query = `SELECT count(*) FROM postrider_internal.river_job
		WHERE state = 'scheduled' AND scheduled_at > now() + interval '10 minutes' AND kind = 'deliver'
		  AND (args ->> 's')::bigint = $1`
	var scheduled atomic.Int64
	stop := ticking(ctx, t.log, func() string {
		return fmt.Sprintf("%s: %d of %d attempts failed", t.result.Scenario, scheduled.Load(), want)
	})
	defer stop()
	for changed, seen := time.Now(), int64(-1); ; {
		var n int64
		if err := t.conn.QueryRow(ctx, query, subscription).Scan(&n); err != nil {
			return fmt.Errorf("count retries: %w", err)
		}
		if n != seen {
			seen, changed = n, time.Now()
		}
		switch scheduled.Store(n); {
		case n >= want:
			return nil
		case time.Since(changed) > stallLimit:
			return fmt.Errorf("only %d of %d deliveries wait for a retry: policy %s does not retry them all", n, want,
				t.o.Policy)
		}
		if !pause(ctx, retriesPoll) {
			return ctx.Err()
		}
	}
}

// scheduleRetries gives all retries one moment, which leaves time for warm-up and baseline, and returns it. When the
// database took too long for that, the moment is let pass, and they get a later one.
func (t *trial) scheduleRetries(ctx context.Context, subscription int64) (moment time.Time, err error) {
	needed, want := t.warmUp()+t.o.Baseline, int64(t.o.Retries)
	for allowance := scheduleTime + time.Duration(want)*time.Second/scheduleRate; ; allowance *= 2 {
		if err := t.awaitRetries(ctx, subscription, want); err != nil {
			return moment, err
		}
		moment = time.Now().Add(needed + allowance)
		if err := t.moveRetries(ctx, subscription, want, moment); err != nil {
			return moment, err
		}
		if err := t.settle(ctx); err != nil {
			return moment, err
		}
		if time.Until(moment) >= needed {
			return moment, nil
		}
		if !waitUntil(ctx, moment) {
			return moment, ctx.Err()
		}
	}
}

func (t *trial) moveRetries(ctx context.Context, subscription, want int64, moment time.Time) error {
	const update = `
WITH moved AS (
    UPDATE postrider_internal.river_job SET scheduled_at = $2
     WHERE state = 'scheduled' AND kind = 'deliver' AND (args ->> 's')::bigint = $1 RETURNING id
)
UPDATE postrider_internal.deliveries d SET next_attempt_at = $2 FROM moved WHERE d.job_id = moved.id`
	moved, err := t.conn.Exec(ctx, update, subscription, moment)
	switch {
	case err != nil:
		return fmt.Errorf("give the retries one moment: %w", err)
	case moved.RowsAffected() != want:
		return fmt.Errorf("%d deliveries were given one moment for their retry, not %d", moved.RowsAffected(), want)
	}
	return nil
}

// account asks the database what became of everybody's deliveries.
func (t *trial) account(ctx context.Context) error {
	if err := t.countOthers(ctx); err != nil {
		return err
	}
	var known int64
	if err := t.conn.QueryRow(ctx, "SELECT count(*) FROM postrider.deliveries WHERE topic = $1", noiseTopic).
		Scan(&known); err != nil {
		return fmt.Errorf("count the noise's deliveries: %w", err)
	}
	t.result.Noise.Unaccounted = max(t.result.Noise.Published-known, 0)
	return nil
}
