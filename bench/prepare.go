package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// fillEvents of fillBytes each are one request of 640 KB: 1 MiB is the limit.
	fillEvents = 2000
	fillBytes  = 320
	// fillers publish them; more would only queue for two cores.
	fillers = 2
)

// say prints a line of progress.
func (r *rig) say(format string, args ...any) { fmt.Fprintf(r.log, r.label+": "+format+"\n", args...) }

// each calls do for 0 … n-1, several at once, and prints how far it is.
func (r *rig) each(ctx context.Context, what string, n int, do func(ctx context.Context, i int) error) error {
	var done atomic.Int64
	stop := ticking(ctx, r.log, func() string {
		return fmt.Sprintf("%s: %s: %d of %d", r.label, what, done.Load(), n)
	})
	defer stop()
	return inParallel(ctx, creators, n, func(ctx context.Context, i int) error {
		defer done.Add(1)
		return do(ctx, i)
	})
}

// fill publishes that many small events for each target, in large requests, and returns how many were accepted.
func (r *rig) fill(ctx context.Context, targets []Target, each int) (int64, error) {
	requests := (each + fillEvents - 1) / fillEvents
	run, started := newRun(), time.Now()
	var published atomic.Int64
	stop := ticking(ctx, r.log, func() string {
		return fmt.Sprintf("%s: %d of %d events published in advance", r.label, published.Load(), each*len(targets))
	})
	defer stop()
	err := inParallel(ctx, fillers, requests*len(targets), func(ctx context.Context, i int) error {
		target, first := i/requests, i%requests*fillEvents
		count := min(each-first, fillEvents)
		if err := fillOnce(ctx, targets[target], run, int64(target*each+first), count); err != nil {
			return err
		}
		published.Add(int64(count))
		return nil
	})
	r.say("%d events published in advance in %.1f s", published.Load(), time.Since(started).Seconds())
	return published.Load(), err
}

// fillOnce publishes one request of count events, numbered from first.
func fillOnce(ctx context.Context, target Target, run string, first int64, count int) error {
	endpoint, err := url.Parse(target.URL)
	if err != nil {
		return err
	}
	t, err := newTemplate(endpoint, target.Key, orDefault(target.Subject, defaultSubject), run, count, fillBytes,
		plainEvent)
	if err != nil {
		return err
	}
	t.patch(first, time.Now())
	client := wireClient{address: endpoint.Host}
	defer client.close()
	defer context.AfterFunc(ctx, client.cut)()
	status, err := client.do(t.request)
	switch {
	case err != nil:
		return fmt.Errorf("publish %d events in advance: %w", count, err)
	case status != 200:
		return fmt.Errorf("publishing %d events in advance was answered %d %s", count, status, client.refusal)
	}
	return nil
}

// settle lets the database finish with what was before, so that it is not done at the expense of what is measured next.
func (r *rig) settle(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum the database: %w", err)
	}
	_, err := r.checkpoint(ctx)
	return err
}

// checkpoint is false where the database does not let us.
func (r *rig) checkpoint(ctx context.Context) (made bool, err error) {
	_, err = r.conn.Exec(ctx, "CHECKPOINT")
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501": // insufficient_privilege
		return false, nil
	case err != nil:
		return false, fmt.Errorf("checkpoint: %w", err)
	}
	return true, nil
}

// copyPolicy makes a copy of a retry policy with some columns changed, as a person does: by SQL.
func (r *rig) copyPolicy(ctx context.Context, from, to, changes string) error {
	const (
		columns = `INSERT INTO postrider_internal.retry_policies
			SELECT (jsonb_populate_record(p, $3::jsonb || jsonb_build_object('name', $2::text, 'built_in', false))).*
			  FROM postrider_internal.retry_policies p WHERE name = $1`
		cells = `INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
			SELECT $2, endpoint_kind, condition, action, min_delay FROM postrider_internal.retry_policy_cells WHERE policy = $1`
		probations = `INSERT INTO postrider_internal.retry_policy_probations (policy, outcome, duration)
			SELECT $2, outcome, duration FROM postrider_internal.retry_policy_probations WHERE policy = $1`
	)
	r.policies = append(r.policies, to)
	return pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		copied, err := tx.Exec(ctx, columns, from, to, changes)
		if err == nil && copied.RowsAffected() == 0 {
			return fmt.Errorf("there is no retry policy %q", from)
		}
		for _, more := range []string{cells, probations} {
			if err == nil {
				_, err = tx.Exec(ctx, more, from, to)
			}
		}
		if err != nil {
			return fmt.Errorf("copy retry policy %s: %w", from, err)
		}
		return nil
	})
}

func (r *rig) subscriptionID(ctx context.Context, topic, name string) (id int64, err error) {
	const query = `SELECT s.id FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t
		    ON t.id = s.topic_id
		WHERE t.name = $1 AND s.name = $2`
	if err := r.conn.QueryRow(ctx, query, topic, name).Scan(&id); err != nil {
		return 0, fmt.Errorf("find event subscription %s: %w", name, err)
	}
	return id, nil
}
