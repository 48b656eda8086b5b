package delivery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"postrider/internal/postgres"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// queueProbations reads the state of probations. Most of them have no row.
func queueProbations(batch *pgx.Batch, found map[string]queue.ProbationRow, works ...[]queue.Probation) {
	const query = `SELECT probation_key, since IS NOT NULL, coalesce(probe_job_id, 0), coalesce(condition, 'other')
		FROM postrider_internal.probations WHERE probation_key = ANY ($1)`
	keys := map[string][]byte{}
	for _, probations := range works {
		for i := range probations {
			keys[probations[i].Key] = []byte(probations[i].Key)
		}
	}
	if len(keys) == 0 {
		return
	}
	var key []byte
	var row queue.ProbationRow
	columns := []any{&key, &row.Held, &row.Probe, &row.Condition}
	batch.Queue(query, slices.Collect(maps.Values(keys))).
		Query(queue.EachRow(columns, func() { found[string(key)] = row }))
}

// changesProbation reports whether the result may change a probation. A success changes nothing unless a failure is
// known.
func (r *Recorder) changesProbation(q *recording) bool {
	return q.Number > 0 && slices.ContainsFunc(q.Probations, func(p queue.Probation) bool {
		_, failing := r.failing.Load(p.Key)
		return q.Outcome != policy.OutcomeDelivered || p.Failing || failing
	})
}

// probation is a probation's row while it is locked.
type probation struct {
	key           string
	baseURL       string
	scope         policy.ProbationScope
	state, before policy.ProbationState
	counted       [][16]byte // the events that state counts as failed
	probe         int64      // job of the probe; 0 = none
	notified      bool       // event subscriptions of the system topic get its beginning and end
	changed       bool       // other than by state
}

// applyResults applies results to the probations, in the order in which the calls ended.
func (r *Recorder) applyResults(probations map[string]*probation, results []*recording, now time.Time) {
	ended := func(q *recording) int64 { return q.StartedAt.Add(q.Duration).UnixNano() }
	slices.SortStableFunc(results, func(a, b *recording) int { return cmp.Compare(ended(a), ended(b)) })
	snapshot := r.Cache.Snapshot()
	for _, q := range results {
		for i := range q.Probations {
			p := probations[q.Probations[i].Key]
			if p == nil {
				continue
			}
			p.scope = q.Probations[i].Rule.Scope
			since := p.state.Since
			if p.apply(q, &q.Probations[i].Rule, now); p.state.Held() && !p.state.Since.Equal(since) {
				p.notified = snapshot.NotifiesOf(q.SubscriptionID)
			}
		}
	}
}

func (p *probation) apply(q *recording, rule *policy.Probation, now time.Time) {
	result := policy.Result{Status: q.Status, Err: q.Err}
	switch {
	case p.probe == q.JobID:
		p.probe, p.changed = 0, true
		p.state, _ = rule.AfterProbe(p.state, q.Outcome, result, now)
	case q.Outcome == policy.OutcomeDelivered:
		p.state, _ = rule.AfterSuccess(p.state, now)
	case !p.state.Held() && !q.Throttled:
		var counted bool
		event := [16]byte(q.FirstEvent)
		differentEvent := q.Number == 1 && !slices.Contains(p.counted, event)
		p.state, counted = rule.AfterFailure(p.state, q.Outcome, result, differentEvent, now)
		if p.state.Held() {
			p.counted = nil // nothing is counted until a success
		} else if counted {
			p.counted = append(p.counted, event)
		}
	}
}

const (
	insertProbations = `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url)
		SELECT * FROM unnest($1::bytea[], $2::text[]) AS u(probation_key, endpoint_base_url) ORDER BY probation_key
		ON CONFLICT (probation_key) DO NOTHING`
	lockProbations = `SELECT probation_key, endpoint_base_url, since, until, coalesce(cause, ''),
			coalesce(condition, 'other'), step, failures_in_a_row, failed_events, coalesce(probe_job_id, 0), notified, now()
		FROM postrider_internal.probations WHERE probation_key = ANY ($1) ORDER BY probation_key FOR UPDATE`
	updateProbation = `UPDATE postrider_internal.probations SET since = $2, until = $3, cause = $4, condition = $5,
			step = $6, failures_in_a_row = $7, probe_job_id = $8, notified = $9, failed_events = $10, updated_at = now()
		WHERE probation_key = $1`
	deleteProbation = `DELETE FROM postrider_internal.probations WHERE probation_key = $1`
)

// queueLockedProbations locks the probations of results, and inserts the rows of those that a failure may change.
func queueLockedProbations(
	batch *pgx.Batch, results []*recording, probations map[string]*probation, now *time.Time,
) {
	var all, failed [][]byte
	var urls []string
	for _, q := range results {
		result := policy.Result{Status: q.Status, Err: q.Err}
		for i := range q.Probations {
			p := &q.Probations[i]
			all = append(all, []byte(p.Key))
			if !q.Throttled && p.Rule.Counts(q.Outcome, result) {
				failed, urls = append(failed, []byte(p.Key)), append(urls, p.EndpointBaseURL)
			}
		}
	}
	batch.Queue(insertProbations, failed, urls)
	var key []byte
	var since, until pgtype.Timestamptz
	var condition string
	p := probation{}
	columns := []any{
		&key, &p.baseURL, &since, &until, &p.state.Cause, &condition, &p.state.Step, &p.state.FailuresInARow, &p.counted,
		&p.probe, &p.notified, now,
	}
	batch.Queue(lockProbations, all).Query(queue.EachRow(columns, func() {
		read := p
		read.key, read.state.Since, read.state.Until = string(key), since.Time, until.Time
		read.state.Result = policy.ParseResult(condition)
		read.before = read.state
		probations[read.key] = &read
	}))
}

func (r *Recorder) writeProbations(ctx context.Context, tx pgx.Tx, probations map[string]*probation) error {
	batch := &pgx.Batch{}
	for _, p := range probations {
		switch s := p.state; {
		case s == (policy.ProbationState{}):
			batch.Queue(deleteProbation, []byte(p.key))
		case p.changed || s != p.before:
			batch.Queue(updateProbation, []byte(p.key), postgres.NullTime(s.Since), postgres.NullTime(s.Until),
				postgres.NullText(string(s.Cause)), s.Result.String(), s.Step, s.FailuresInARow, postgres.NullInt(p.probe),
				p.notified, p.counted)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store probations: %w", err)
	}
	for _, p := range probations {
		if !p.before.Held() && p.state.Held() {
			r.Log.Warn("a probation began: deliveries are held; a probe is sent when the hold ends, or earlier after "+
				"POST …/probe of an event subscription", "scope", p.scope, "endpoint", p.baseURL, "cause", p.state.Cause, "until",
				p.state.Until)
		} else if p.before.Held() && !p.state.Held() {
			r.Log.Info("the probation ended", "scope", p.scope, "endpoint", p.baseURL, "held_since", p.before.Since)
		}
	}
	return nil
}

// rememberFailing remembers the probations that this node has left with failures, so that a success whose request was
// sent before resets them, too. Those without a row were removed by a success on another node or by an operator.
func (r *Recorder) rememberFailing(results []*recording, probations map[string]*probation) {
	for _, q := range results {
		for i := range q.Probations {
			key := q.Probations[i].Key
			if p := probations[key]; p != nil && p.state != (policy.ProbationState{}) {
				r.failing.Store(p.key, true)
			} else {
				r.failing.Delete(key)
			}
		}
	}
}

// endProbations ends probations after a late success, and forgets the counted failures. The timeout counted as a
// failure, but the endpoint works. As policy.AfterSuccess says, a success does not end a hold that began after its
// request, before the probe is due.
func (r *Recorder) endProbations(ctx context.Context, probations []queue.Probation, started time.Time) error {
	const unlessLater = deleteProbation + " AND (since IS NULL OR since <= $2 OR until <= now())"
	for i := range probations {
		key := probations[i].Key
		tag, err := r.DB.Exec(ctx, unlessLater, []byte(key), started)
		if err != nil {
			return fmt.Errorf("end the probation: %w", err)
		}
		if tag.RowsAffected() > 0 {
			r.failing.Delete(key)
		}
	}
	return nil
}

// Forget removes what this process remembers of event subscriptions that were deleted.
func (r *Recorder) Forget() {
	c, used := r.Cache.Snapshot(), map[string]bool{}
	for sub := range c.Subscriptions() {
		for _, key := range c.ProbationKeys(sub) {
			used[string(key)] = true
		}
	}
	r.failing.Range(func(key, _ any) bool {
		if !used[key.(string)] {
			r.failing.Delete(key)
		}
		return true
	})
}
