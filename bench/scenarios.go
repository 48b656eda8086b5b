package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// How deliveries of the backlog wait.
const (
	WaitPaused    = "paused"    // as rows, on hold
	WaitScheduled = "scheduled" // as rows with a job each, due in hours
)

var scenarios = map[string]func(*run, context.Context) error{
	"throughput": (*run).throughput,
	"publish":    (*run).publish,
	"latency":    (*run).throughput, // in an open loop
	"batched":    (*run).batched,
	"backlog":    (*run).backlog,
	"failing":    (*run).failing,
}

// Scenarios are the names of the scenarios of Run.
func Scenarios() []string { return slices.Sorted(maps.Keys(scenarios)) }

// throughput publishes to event subscriptions at one endpoint, each with its own path.
func (r *run) throughput(ctx context.Context) error {
	base := ""
	if r.o.AnswerAfter > 0 {
		base = fmt.Sprintf("/slow/%d", r.o.AnswerAfter.Milliseconds())
	}
	var endpoints []endpoint
	for i := range r.o.Subscriptions {
		name := fmt.Sprintf("sink-%d", i+1)
		endpoints = append(endpoints, endpoint{name, base + "/" + name, nil})
	}
	target, err := r.measuredTopic(ctx, "bench", endpoints...)
	if err != nil {
		return err
	}
	return r.measure(ctx, phase{name: r.o.Scenario, target: target})
}

// failing measures without failures and then with them. The retries come soon enough to be part of what is measured,
// and late enough (after more than 5 s) to be promoted jobs, as the retries of the built-in policies are.
func (r *run) failing(ctx context.Context) error {
	policy := "bench-failing" + r.suffix
	if err := r.api.copyPolicy(ctx, "ga-2018", policy, settings{
		"stepsInSeconds": []int{6}, "tailInSeconds": 6, "jitterFraction": 0.1, "jitterCapInSeconds": 0.6,
	}); err != nil {
		return err
	}
	r.onClose("/v1/policies/" + policy)
	for _, percent := range []int{0, r.o.FailurePercent} {
		e := endpoint{"sink", fmt.Sprintf("/failing/%d", percent), settings{"retryPolicy": settings{"policy": policy}}}
		target, err := r.measuredTopic(ctx, fmt.Sprintf("failing-%d", percent), e)
		if err != nil {
			return err
		}
		p := phase{name: fmt.Sprintf("%d %% failing", percent), target: target, duringPublish: true}
		if err := r.measure(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// publishPaused publishes to an event subscription with batches while delivery is paused, and measures that. Batches
// are cut by the number of events alone.
func (r *run) publishPaused(ctx context.Context, batch int) (target, error) {
	batches := endpoint{"batches", "/batches", settings{
		"maxEventsPerBatch": batch, "preferredBatchSizeInKilobytes": maxRequestBytes >> 10,
	}}
	target, err := r.measuredTopic(ctx, "bench", batches)
	if err != nil {
		return target, err
	}
	if err := r.api.pause(ctx, r.topics[0], "batches"); err != nil {
		return target, err
	}
	return target, r.measure(ctx, phase{name: "publishing, delivery paused", target: target, paused: true})
}

// publish then delivers what was published, unmeasured, to prove that nothing is lost.
func (r *run) publish(ctx context.Context) error {
	if _, err := r.publishPaused(ctx, max(r.o.EventsPerRequest, 100)); err != nil {
		return err
	}
	r.say("delivering what was published")
	if err := r.api.resume(ctx, r.topics[0], "batches"); err != nil {
		return err
	}
	return r.drain(ctx, r.expected)
}

// batched measures publishing while delivery is paused, then delivering that, then both at once.
func (r *run) batched(ctx context.Context) error {
	target, err := r.publishPaused(ctx, r.o.EventsPerBatch)
	if err != nil {
		return err
	}
	if err := r.measureDrain(ctx, "delivering what was paused", func(ctx context.Context) error {
		return r.api.resume(ctx, r.topics[0], "batches")
	}); err != nil {
		return err
	}
	return r.measure(ctx, phase{name: "publishing and delivering", target: target})
}

// backlog measures an event subscription alone, and then beside many deliveries of another that wait.
func (r *run) backlog(ctx context.Context) error {
	target, err := r.measuredTopic(ctx, "bench", endpoint{"sink", "/sink", nil})
	if err != nil {
		return err
	}
	if err := r.measure(ctx, phase{name: "alone", target: target}); err != nil {
		return err
	}
	if err := r.createBacklog(ctx); err != nil {
		return err
	}
	p := phase{name: fmt.Sprintf("beside %d %s", r.o.Waiting, r.o.Waits), target: target}
	if err := r.measure(ctx, p); err != nil {
		return err
	}
	known, err := r.pending(ctx, []string{"waiting" + r.suffix})
	r.report.Waiting, r.report.Unaccounted = known, int64(r.o.Waiting)-known
	return err
}

func (r *run) createBacklog(ctx context.Context) error {
	t, err := r.createTopic(ctx, "waiting", endpoint{"later", "/later", nil})
	if err != nil {
		return err
	}
	topic := "waiting" + r.suffix
	if err := r.api.pause(ctx, topic, "later"); err != nil {
		return err
	}
	if err := r.publishBulk(ctx, []target{t}, r.o.Waiting); err != nil {
		return err
	}
	if r.o.Waits == WaitScheduled {
		if err := r.schedule(ctx, topic, time.Now().Add(12*time.Hour)); err != nil {
			return err
		}
		if err := r.api.resume(ctx, topic, "later"); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}
