package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/catalog"
	"postrider/jobs/queue"
	"postrider/postgres"
)

type loadRequest struct {
	deliveryID, jobID int64
	rest              queue.Rest
	old               bool // the event was not among the recent ones
	done              chan loadAnswer
}

type loadAnswer struct {
	work *queue.Work
	err  error
}

const (
	loadGroup   = 200
	loadTimeout = 10 * time.Second
)

// Loader reads deliveries and batches with their bodies for attempts, and cuts batches. It reads many deliveries in one
// query, if there is memory: what does not fit is read again when others were released.
type Loader struct {
	LoaderParts
	postgres.Failpoint
	queue   *postgres.Batcher[*loadRequest]
	cutters cutters

	now time.Time // the database's, when it was last asked; the loader's own goroutine only
}

// LoaderParts are what a Loader needs.
type LoaderParts struct {
	DB       *postgres.DB
	Cache    *catalog.Cache
	Memory   *queue.Memory
	Jobs     *queue.JobRows
	Traffic  *queue.Traffic
	Notifier *queue.Notifier
}

// NewLoader makes a loader; its Run loads.
func NewLoader(parts LoaderParts, fail postgres.Failpoint) *Loader {
	return &Loader{LoaderParts: parts, Failpoint: fail, queue: postgres.NewBatcher[*loadRequest](), cutters: cutters{slow: slowLook}}
}

// Load reads a delivery of an event subscription for the job that is its token. ErrNotFound: the delivery is finished, or has
// another token by now; there is nothing to do.
func (l *Loader) Load(ctx context.Context, deliveryID, subscriptionID, jobID int64) (*queue.Work, error) {
	req := &loadRequest{deliveryID: deliveryID, jobID: jobID, rest: queue.RestOf(l.Cache.Catalogue(), subscriptionID), done: make(chan loadAnswer, 1)}
	l.queue.Add(req)
	select {
	case answer := <-req.done:
		return answer.work, answer.err
	case <-ctx.Done():
		go func() { // the answer may be on its way: give its memory back
			if answer := <-req.done; answer.work != nil {
				answer.work.Release()
			}
		}()
		return nil, fmt.Errorf("load delivery %d: %w", deliveryID, ctx.Err())
	}
}

// Run loads deliveries in groups until ctx ends.
func (l *Loader) Run(ctx context.Context) {
	l.queue.Run(ctx, fitsLoad, func(group []*loadRequest) {
		for len(group) > 0 {
			free := l.Memory.Wait(ctx)
			if ctx.Err() != nil {
				answerAll(group, fmt.Errorf("%w: this node is stopping", postgres.ErrUnavailable))
				return
			}
			group = l.load(group, free)
		}
	})
}

func fitsLoad() func(*loadRequest) bool {
	n := 0
	return func(*loadRequest) bool {
		n++
		return n <= loadGroup
	}
}

// LATERAL with LIMIT keeps the lookup of each event an index scan of the one partition its day names; as a plain join
// the planner may prefer to read whole partitions. The length of a body is known without reading it.
//
// $3 and $4 bound the days, and so the partitions that are opened: with all of them planning took a third of the time, and so it
// still does where plans cannot be kept (PgBouncer).
const loadStatement = `
SELECT d.id, d.subscription_id, d.job_id, d.event_uuid, d.attempts, d.skipped_marks, d.owed_since, d.next_attempt_at, d.not_before, d.first_attempt_at, clock_timestamp(),
       e.id IS NULL, coalesce(e.schema, ''), coalesce(e.event_id, ''), coalesce(e.event_type, ''), coalesce(e.subject, ''), coalesce(e.source, ''), coalesce(e.data_version, ''),
       CASE WHEN e.schema = 'CustomEventSchema' THEN e.event_time END, coalesce(e.traceparent, ''), coalesce(e.tracestate, ''),
       coalesce(st.hold, ''), coalesce(st.stop_time_to_live, false), coalesce(d.last_hold, ''),
       CASE WHEN sum(octet_length(e.body)) OVER (ORDER BY d.id) <= $2 THEN e.body END, d.event_day NOT BETWEEN $3::date AND $4::date
  FROM postrider_internal.deliveries d
  LEFT JOIN LATERAL (SELECT * FROM postrider_internal.event_subscription_states st WHERE st.subscription_id = d.subscription_id LIMIT 1) st ON true
  LEFT JOIN LATERAL (SELECT * FROM postrider_internal.events e WHERE e.id = d.event_uuid AND e.day = d.event_day AND e.day BETWEEN $3 AND $4 AND e.erased_at IS NULL LIMIT 1) e ON true
 WHERE d.id = ANY ($1)`

// load answers what fits into the memory that is free and returns the rest.
func (l *Loader) load(group []*loadRequest, free int64) (rest []*loadRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	found, err := l.query(ctx, group, free)
	if err != nil {
		answerAll(group, fmt.Errorf("%w: load deliveries: %w", postgres.ErrUnavailable, err))
		return nil
	}
	for _, req := range group {
		work := found[req.deliveryID]
		switch {
		case work == nil || work.JobID == nil || *work.JobID != req.jobID:
			req.done <- loadAnswer{err: fmt.Errorf("delivery %d: %w", req.deliveryID, postgres.ErrNotFound)}
		case work.Old:
			req.old = true
			rest = append(rest, req)
		case work.Event.Body == nil && !work.EventMissing:
			rest = append(rest, req)
		default:
			work.Free = l.Memory.Take(int64(len(work.Event.Body)))
			req.done <- loadAnswer{work: work}
		}
	}
	return rest
}

func (l *Loader) query(ctx context.Context, group []*loadRequest, free int64) (map[int64]*queue.Work, error) {
	ids := make([]int64, len(group))
	for i, req := range group {
		ids[i] = req.deliveryID
	}
	found, rests := make(map[int64]*queue.Work, len(group)), map[string]queue.RestRow{}
	from, to := l.days(group)
	asOf := time.Now()
	err := l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		batch.Queue(loadStatement, ids, free, from, to).Query(func(rows pgx.Rows) error { return readWork(rows, found) })
		queueRests(batch, group, rests)
	})
	if err != nil {
		return nil, err
	}
	for _, req := range group {
		if work := found[req.deliveryID]; work != nil {
			work.AsOf = asOf
			work.SetRest(req.rest, rests, req.jobID)
			l.now = work.ReadAt
		}
	}
	return found, nil
}

// days are yesterday and today, of which nearly every event is; all days once one of the group was found to be of another.
func (l *Loader) days(group []*loadRequest) (from, to pgtype.Date) {
	if l.now.IsZero() || slices.ContainsFunc(group, func(req *loadRequest) bool { return req.old }) {
		return pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	today := l.now.UTC()
	return pgtype.Date{Time: today.AddDate(0, 0, -1), Valid: true}, pgtype.Date{Time: today, Valid: true}
}

func readWork(rows pgx.Rows, found map[int64]*queue.Work) error {
	w, at := new(queue.Work), (*time.Time)(nil)
	_, err := pgx.ForEachRow(rows, []any{
		&w.DeliveryID, &w.SubscriptionID, &w.JobID, &w.SystemID, &w.Attempts, &w.SkippedMarks, &w.OwedSince, &w.NextAttemptAt, &w.NotBefore, &w.FirstAttemptAt, &w.ReadAt,
		&w.EventMissing, &w.Event.Schema, &w.Event.ID, &w.Event.Type, &w.Event.Subject, &w.Event.Source, &w.Event.DataVersion,
		&at, &w.Event.Trace.Parent, &w.Event.Trace.State, &w.Hold, &w.TimeToLiveStopped, &w.LastHold, &w.Event.Body, &w.Old,
	}, func() error {
		work := *w
		work.Event.Time = postgres.TimeOrNone(at)
		work.LoadedAt = time.Now()
		found[work.DeliveryID] = &work
		w.JobID, w.NotBefore, w.FirstAttemptAt, w.Event.Body = nil, nil, nil, nil // the next row must not write into these
		return nil
	})
	return err
}

func answerAll(group []*loadRequest, err error) {
	for _, req := range group {
		req.done <- loadAnswer{err: err}
	}
}
