package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// throughput publishes to event subscriptions at the one sink. Several of them have a path each, so that the sink tells
// their deliveries apart.
func (b *run) throughput(ctx context.Context) error {
	subscriptions := []named{b.at("sink", "/")}
	if b.o.Subscriptions > 1 {
		subscriptions, b.prefixes = nil, nil
		for i := range b.o.Subscriptions {
			name := fmt.Sprintf("sink-%d", i+1)
			subscriptions, b.prefixes = append(subscriptions, b.at(name, "/"+name)), append(b.prefixes, name+"/")
		}
	}
	target, err := b.newTopic(ctx, "bench", subscriptions...)
	if err != nil {
		return err
	}
	return b.measure(ctx, phase{name: b.o.Scenario, target: target})
}

// publishSQL publishes in transactions of the publishers' own.
func (b *run) publishSQL(ctx context.Context) error {
	target, err := b.newTopic(ctx, "bench", b.at("sink", "/"))
	if err != nil {
		return err
	}
	return b.measure(ctx, phase{name: "sql", target: target, sql: true})
}

// at is an event subscription at that path of the sink.
func (b *run) at(name, path string) named {
	return named{name, subscription{EndpointURL: b.sinkAPI.base + path}}
}

// remote delivers to an endpoint that is far away.
func (b *run) remote(ctx context.Context) error {
	path := fmt.Sprintf("slow/%d", b.o.AnswerAfter.Milliseconds())
	target, err := b.newTopic(ctx, "remote", b.at("far", "/"+path))
	if err != nil {
		return err
	}
	target.Prefix = path + "/"
	return b.measure(ctx, phase{name: "remote", target: target})
}

// failingPolicy has retries come soon enough to be part of what is measured, and late enough (5 s are the limit) to be
// jobs that the promoter makes ready, as those of every built-in policy are.
const failingPolicy = `{"steps":["6 seconds"],"tail":"6 seconds","jitter_fraction":0.1,"jitter_cap":"600 milliseconds"}`

// failing measures without failures and then with them: what counts is what they cost.
func (b *run) failing(ctx context.Context) error {
	policy := "bench-failing" + b.borrowed
	if err := b.copyPolicy(ctx, "ga-2018", policy, failingPolicy); err != nil {
		return err
	}
	for _, share := range []int{0, b.o.FailurePercent} {
		path := fmt.Sprintf("failing/%d", share)
		s := b.at("sink", "/"+path)
		s.RetryPolicy = &retryPolicy{policy}
		target, err := b.newTopic(ctx, fmt.Sprintf("failing-%d", share), s)
		if err != nil {
			return err
		}
		target.Prefix = path + "/"
		if err := b.measure(ctx, phase{name: fmt.Sprintf("%d %% failing", share), target: target, window: true}); err != nil {
			return err
		}
	}
	return nil
}

// deadLetters has every request answered 400 under a policy that never retries it and never lets the endpoint rest.
func (b *run) deadLetters(ctx context.Context) error {
	s := b.at("refused", "/status/400")
	s.RetryPolicy = &retryPolicy{"ga-2018"}
	target, err := b.newTopic(ctx, "deadletters", s)
	if err != nil {
		return err
	}
	return b.measure(ctx, phase{name: "dead letters", target: target, refused: true})
}

// compareDeadLetters holds what became a dead letter, by its bytes, against the publishers' ledger: the sink
// acknowledged nothing.
func (b *run) compareDeadLetters(ctx context.Context) (Verdict, error) {
	if err := b.sink.stop(); err != nil {
		return Verdict{}, err
	}
	published, err := ReadLedger(b.publishedPath())
	if err != nil {
		return Verdict{}, err
	}
	result, err := b.conn.Query(ctx,
		"SELECT event_id, sha256(body) FROM postrider_internal.dead_letters WHERE topic = ANY ($1)", b.counted)
	if err != nil {
		return Verdict{}, fmt.Errorf("read the dead letters: %w", err)
	}
	kept, err := pgx.CollectRows(result, func(row pgx.CollectableRow) (e Entry, err error) {
		var hash []byte
		err = row.Scan(&e.ID, &hash)
		copy(e.Hash[:], hash)
		return e, err
	})
	if err != nil {
		return Verdict{}, fmt.Errorf("read the dead letters: %w", err)
	}
	return Compare(published, kept), nil
}

// batching is an event subscription that takes batches, cut by number alone.
func (b *run) batching(events int) named {
	s := b.at("batches", "/")
	s.MaxEventsPerBatch, s.PreferredBatchSize = events, maxRequestBytes>>10
	return s
}

// pausedBatches publishes while delivery is paused, and measures that.
func (b *run) pausedBatches(ctx context.Context, events int) (topic string, target Target, err error) {
	if target, err = b.newTopic(ctx, "bench", b.batching(events)); err != nil {
		return "", target, err
	}
	topic = b.counted[0]
	if err := b.api.setPaused(ctx, topic, "batches", true); err != nil {
		return "", target, err
	}
	return topic, target, b.measure(ctx, phase{name: "publishing, delivery paused", target: target, paused: true})
}

// publishPaused delivers what was published once that is measured, to prove that nothing of it is lost; in batches,
// because that is quicker.
func (b *run) publishPaused(ctx context.Context) error {
	topic, _, err := b.pausedBatches(ctx, max(b.o.EventsPerRequest, 100))
	if err != nil {
		return err
	}
	b.say("delivering what was published")
	if err := b.api.setPaused(ctx, topic, "batches", false); err != nil {
		return err
	}
	return b.drain(ctx, b.owed)
}

// batched measures publishing while delivery is paused, then delivering that, then both at once.
func (b *run) batched(ctx context.Context) error {
	topic, target, err := b.pausedBatches(ctx, b.o.EventsPerBatch)
	if err != nil {
		return err
	}
	err = b.measureDrain(ctx, "delivering what was paused", func(ctx context.Context) error {
		return b.api.setPaused(ctx, topic, "batches", false)
	})
	if err != nil {
		return err
	}
	return b.measure(ctx, phase{name: "publishing and delivering", target: target})
}

// backlog measures an event subscription alone, and then beside very many deliveries that wait for another.
func (b *run) backlog(ctx context.Context) error {
	target, err := b.newTopic(ctx, "bench", b.at("sink", "/"))
	if err != nil {
		return err
	}
	if err := b.measure(ctx, phase{name: "alone", target: target}); err != nil {
		return err
	}
	if err := b.pile(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx,
		phase{name: fmt.Sprintf("beside %d %s", b.o.Waiting, b.o.Waits), target: target}); err != nil {
		return err
	}
	known, err := b.leftOf(ctx, leftSQL, []string{"waiting" + b.borrowed})
	b.report.Waiting, b.report.Unaccounted = known, int64(b.o.Waiting)-known
	return err
}

// pile makes the deliveries that wait. They are none of those that are measured.
func (b *run) pile(ctx context.Context) error {
	measured := b.counted
	target, err := b.newTopic(ctx, "waiting", b.at("later", "/waiting"))
	if err != nil {
		return err
	}
	topic := b.counted[len(b.counted)-1]
	b.counted = measured
	if err := b.api.setPaused(ctx, topic, "later", true); err != nil {
		return err
	}
	if _, err := b.fill(ctx, []Target{target}, b.o.Waiting); err != nil {
		return err
	}
	if b.o.Waits == WaitScheduled {
		if err := b.schedule(ctx, topic, "later"); err != nil {
			return err
		}
	}
	return b.settle(ctx)
}

// schedule gives what a pause holds its jobs, to run in hours, as if each delivery had failed and waited for its retry:
// a million real failures would take minutes. Nothing is measured meanwhile.
func (b *run) schedule(ctx context.Context, topic, name string) error {
	const give = `
WITH jobs AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'scheduled', jsonb_build_object('d', id, 's', subscription_id, 'n', 1), 'deliver', 'deliveries', 1, 1000,
           now() + interval '12 hours'
      FROM postrider_internal.deliveries WHERE subscription_id = $1 AND hold = 'paused'
 RETURNING id, (args ->> 'd')::bigint AS delivery_id
)
UPDATE postrider_internal.deliveries d SET hold = NULL, job_id = jobs.id, next_attempt_at = now() + interval '12 hours'
FROM jobs WHERE d.id = jobs.delivery_id`
	id, err := b.subscriptionID(ctx, topic, name)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := b.conn.Exec(ctx, give, id); err != nil {
		return fmt.Errorf("schedule what waits: %w", err)
	}
	b.say("scheduled in %.1f s", time.Since(began).Seconds())
	return b.api.setPaused(ctx, topic, name, false)
}
