package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	noiseTopic = "noise"
	// noiseClients are enough for the noise's rate while the others' load waits in the same service.
	noiseClients = 16
	// retriesPolicy is a copy of the retry policy with steps of an hour: each delivery is retried once.
	retriesPolicy = "bench-retries"
	// scheduleTime and schedulesPerSecond allow for scheduling the retries, and for a vacuum after that.
	scheduleTime       = 5 * time.Second
	schedulesPerSecond = 8_000
)

// noise is the bad endpoints: event subscriptions of one topic.
type noise struct {
	names   []string
	targets []target
	at      time.Time // when it starts by itself; zero: startNoise starts it
}

// forAll calls a function of the API for each event subscription.
func (n *noise) forAll(ctx context.Context, call func(ctx context.Context, topic, name string) error) error {
	return parallel(ctx, parallelChanges, len(n.names), func(ctx context.Context, i int) error {
		return call(ctx, noiseTopic, n.names[i])
	})
}

// prepareNoise creates the backlog of the bad endpoints. Until startNoise, or the time of the retries, none is called.
func (r *noisyRun) prepareNoise(ctx context.Context) error {
	report := &r.result.Noise
	*report = NoiseReport{Endpoints: 1, Policy: r.o.Policy}
	each, policy, path := r.o.Owed, r.o.Policy, "/hang"
	switch r.result.Scenario {
	case ScenarioHang20:
		report.Endpoints, each = r.o.Endpoints, r.o.OwedEach
	case ScenarioRetries:
		each, policy, path = r.o.Retries, retriesPolicy, "/failing/100/"
		changes := settings{"stepsInSeconds": []int{3600}, "jitterFraction": 0}
		if err := r.api.copyPolicy(ctx, r.o.Policy, policy, changes); err != nil {
			return err
		}
	}
	if err := r.createNoise(ctx, policy, path); err != nil {
		return err
	}
	if err := r.noise.forAll(ctx, r.api.pause); err != nil {
		return err
	}
	if err := r.publishBulk(ctx, r.noise.targets, each); err != nil {
		return err
	}
	report.Owed = int64(each * report.Endpoints)
	report.Published = report.Owed
	if r.result.Scenario == ScenarioRetries {
		return r.scheduleRetries(ctx)
	}
	return r.settle(ctx)
}

func (r *noisyRun) createNoise(ctx context.Context, policy, path string) error {
	key, err := r.api.createTopic(ctx, noiseTopic)
	if err != nil {
		return err
	}
	for i := range r.result.Noise.Endpoints {
		name := fmt.Sprintf("noise-%05d", i)
		r.noise.names = append(r.noise.names, name)
		r.noise.targets = append(r.noise.targets,
			target{url: r.publishURL(noiseTopic), key: key, subject: "/" + name + "/load"})
	}
	return r.noise.forAll(ctx, func(ctx context.Context, topic, name string) error {
		return r.api.subscribe(ctx, topic, name, r.sinkAPI.base+path+name,
			settings{"retryPolicy": settings{"policy": policy}, "filter": bySubject("/" + name + "/")})
	})
}

// startNoise resumes the bad endpoints and publishes more events for them. Retries start by themselves.
func (r *noisyRun) startNoise(ctx context.Context) error {
	if !r.noise.at.IsZero() {
		return nil
	}
	if err := r.noise.forAll(ctx, r.api.resume); err != nil || r.o.NoiseRate == 0 {
		return err
	}
	l, err := newLoad(loadOptions{
		targets: r.noise.targets, clients: noiseClients, rate: r.o.NoiseRate, duration: r.o.Duration,
		eventBytes: bulkBytes, eventsPerRequest: 1,
	})
	if err != nil {
		return err
	}
	loaded, err := l.publish(ctx)
	r.result.Noise.Published += loaded.published
	return err
}

// scheduleRetries makes all retries due at the same time, after warm-up and baseline. While these are measured nothing
// changes the rows.
func (r *noisyRun) scheduleRetries(ctx context.Context) error {
	needed := r.warmUp() + r.o.Baseline
	r.noise.at = time.Now().Add(needed + scheduleTime + time.Duration(r.o.Retries)*time.Second/schedulesPerSecond)
	if err := r.schedule(ctx, noiseTopic, r.noise.at); err != nil {
		return err
	}
	if err := r.noise.forAll(ctx, r.api.resume); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if time.Until(r.noise.at) < needed {
		return fmt.Errorf("the database is too slow for %d retries: choose fewer (--retries)", r.o.Retries)
	}
	return nil
}

// accountForNoise counts the deliveries of the bad endpoints that the database has.
func (r *noisyRun) accountForNoise(ctx context.Context) error {
	var known int64
	if err := r.conn.QueryRow(ctx, "SELECT count(*) FROM postrider.deliveries WHERE topic = $1", noiseTopic).
		Scan(&known); err != nil {
		return fmt.Errorf("count the noise's deliveries: %w", err)
	}
	r.result.Noise.Unaccounted = max(r.result.Noise.Published-known, 0)
	return nil
}
