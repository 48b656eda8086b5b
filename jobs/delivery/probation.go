package delivery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/postgres"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// queueProbations reads the state of probations. Most of them have no row.
func queueProbations(batch *pgx.Batch, found map[string]queue.ProbationRow, rests ...queue.Probation) {
	const query = `SELECT probation_key, since IS NOT NULL, coalesce(probe_job_id, 0), coalesce(condition, 'other')
		FROM postrider_internal.probations WHERE probation_key = ANY ($1)`
	keys := map[string][]byte{}
	for i := range rests {
		if key := rests[i].Key; key != "" {
			keys[key] = []byte(key)
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

// failing remembers the probations' keys that this node has left with failures: a success that was sent before must
// reset them, too.
type failing struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (f *failing) has(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key]
}

func (f *failing) set(key string, failing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !failing {
		delete(f.keys, key)
		return
	}
	if f.keys == nil {
		f.keys = map[string]bool{}
	}
	f.keys[key] = true
}

// forget takes out what has no row any more: another node's success or a person's release has removed it, and each
// further success here would ask for it again.
func (f *failing) forget(heard []*healthSignal, standings map[string]*probation) {
	for _, e := range heard {
		if standings[e.Key] == nil {
			f.set(e.Key, false)
		}
	}
}

// retain forgets the keys that nothing goes by any more.
func (f *failing) retain(c *catalog.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) == 0 {
		return
	}
	used := map[string]bool{}
	for sub := range c.Subscriptions() {
		used[string(c.ProbationKey(sub))] = true
	}
	maps.DeleteFunc(f.keys, func(key string, _ bool) bool { return !used[key] })
}

// evidence is what a result says of the health of what rests together.
type healthSignal struct {
	queue.Probation
	outcome  policy.Outcome
	met      policy.Result
	jobID    int64
	event    [16]byte // that the request stands for
	first    bool     // it was its first attempt
	finished time.Time
	told     bool // somebody is told if a probation begins with it
}

// evidenceOf is nil where the result can change nothing: no request was made, the policy has no probation, or it is a
// success and nothing is known to have failed.
func (r *Recorder) evidenceOf(q *Result) *healthSignal {
	success := q.Outcome == policy.OutcomeDelivered
	if q.Number == 0 || q.Probation.Key == "" || success && !q.Probation.Failing && !r.failing.has(q.Probation.Key) {
		return nil
	}
	return &healthSignal{
		Probation: q.Probation, outcome: q.Outcome, met: policy.Result{Status: q.Status, Err: q.Err}, jobID: q.JobID,
		event: q.FirstEvent, first: q.Number == 1,
		finished: q.StartedAt.Add(q.Duration), told: r.Cache.Snapshot().NotifiesOf(q.SubscriptionID),
	}
}

// standing is a probation's row while it is locked.
type probation struct {
	key     string
	baseURL string
	rest    policy.ProbationState
	counted [][16]byte // the events that rest counts, while it does; at most the trigger of a policy
	probe   int64
	before  policy.ProbationState
	changed bool
	told    bool // its beginning was told, or is to be
}

// weigh lets the policy judge each piece of evidence, in the order in which the calls ended.
func weigh(standings map[string]*probation, found []*healthSignal, now time.Time) {
	slices.SortStableFunc(found,
		func(a, b *healthSignal) int { return cmp.Compare(a.finished.UnixNano(), b.finished.UnixNano()) })
	for _, e := range found {
		s := standings[e.Key]
		if s == nil {
			continue
		}
		since := s.rest.Since
		if s.weigh(e, now); s.rest.Held() && !s.rest.Since.Equal(since) {
			s.told = e.told
		}
	}
}

func (s *probation) weigh(e *healthSignal, now time.Time) {
	if s.probe == e.jobID {
		s.probe, s.changed = 0, true
		s.rest, _ = e.Policy.AfterProbe(s.rest, e.outcome, e.met, now)
		return
	}
	if e.outcome == policy.OutcomeDelivered {
		s.rest, _ = e.Policy.AfterSuccess(s.rest, now)
		return
	}
	s.count(e, now)
}

func (s *probation) count(e *healthSignal, now time.Time) {
	if s.rest.Held() {
		return
	}
	var counted bool
	s.rest, counted = e.Policy.AfterFailure(s.rest, e.outcome, e.met, e.first && !slices.Contains(s.counted, e.event), now)
	switch {
	case s.rest.Held():
		s.counted = nil // until a success, nothing is counted any more
	case counted:
		s.counted = append(s.counted, e.event)
	}
}

const (
	insertProbations = `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url)
		SELECT * FROM unnest($1::bytea[], $2::text[]) AS u(probation_key, endpoint_base_url) ORDER BY probation_key
		ON CONFLICT (probation_key) DO NOTHING`
	deleteProbation = `DELETE FROM postrider_internal.probations WHERE probation_key = $1`
)

var (
	lockProbations  = sqlFile("lock_probations.sql")
	updateProbation = sqlFile("update_probation.sql")
)

// queueStandings locks the rows concerned, and makes those that a failure may need.
func queueStandings(batch *pgx.Batch, found []*healthSignal, standings map[string]*probation, now *time.Time) {
	var all, failed [][]byte
	var urls []string
	for _, e := range found {
		all = append(all, []byte(e.Key))
		if e.outcome != policy.OutcomeDelivered {
			failed, urls = append(failed, []byte(e.Key)), append(urls, e.EndpointBaseURL)
		}
	}
	batch.Queue(insertProbations, failed, urls)
	batch.Queue(lockProbations, all).Query(func(rows pgx.Rows) error {
		var key []byte
		var since, until pgtype.Timestamptz
		var condition string
		s := probation{}
		columns := []any{
			&key, &s.baseURL, &since, &until, &s.rest.Cause, &condition, &s.rest.Step, &s.rest.FailuresInARow, &s.counted,
			&s.probe, &s.told, now,
		}
		_, err := pgx.ForEachRow(rows, columns, func() error {
			read := s
			read.key, read.rest.Since, read.rest.Until = string(key), since.Time, until.Time
			read.rest.Result = policy.ParseResult(condition)
			read.before = read.rest
			standings[read.key] = &read
			return nil
		})
		return err
	})
}

func (r *Recorder) writeStandings(ctx context.Context, tx pgx.Tx, standings map[string]*probation) error {
	batch := &pgx.Batch{}
	for _, st := range standings {
		switch rest := st.rest; {
		case rest == (policy.ProbationState{}):
			batch.Queue(deleteProbation, []byte(st.key))
		case st.changed || rest != st.before:
			batch.Queue(updateProbation, []byte(st.key), postgres.NullTime(rest.Since), postgres.NullTime(rest.Until),
				postgres.NullText(string(rest.Cause)),
				rest.Result.String(), rest.Step, rest.FailuresInARow, postgres.NullInt(st.probe), st.told, st.counted)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write down the probation: %w", err)
	}
	for _, st := range standings {
		r.failing.set(st.key, st.rest != (policy.ProbationState{}))
		r.logProbation(st)
	}
	return nil
}

// logProbation logs a hold's beginning and its end.
func (r *Recorder) logProbation(st *probation) {
	switch {
	case !st.before.Held() && st.rest.Held():
		r.Log.Warn(
			"deliveries to an endpoint are held after failures; one is let through at the end of the hold, or now by POST "+
				"…/probe of an event subscription on it", "endpoint", st.baseURL, "cause", st.rest.Cause, "until", st.rest.Until)
	case st.before.Held() && !st.rest.Held():
		r.Log.Info("an endpoint succeeded; its held deliveries are released", "endpoint", st.baseURL, "held_since",
			st.before.Since)
	}
}

// endProbation ends a probation, and the counting of failures, after a late success. The timeout before it was counted
// as a failure; but the endpoint works, if slowly, and a probation would make it slower still.
func (r *Recorder) endProbation(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	if _, err := r.DB.Exec(ctx, deleteProbation, []byte(key)); err != nil {
		return fmt.Errorf("end the probation: %w", err)
	}
	r.failing.set(key, false)
	return nil
}

// Forget removes what this process remembers of event subscriptions that were deleted.
func (r *Recorder) Forget() { r.failing.retain(r.Cache.Snapshot()) }
