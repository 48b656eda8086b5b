// Package delivery has a delivery's life in SQL: Loader reads what an attempt needs, Recorder writes its result (T3),
// Releaser ends holds.
package delivery

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
	"postrider/migrations"
)

const (
	loadGroup   = 200
	loadTimeout = 10 * time.Second
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sqlFile = postgres.SQLFiles(statements{})

// statements are the files of this package, and those that it shares with SQL functions.
type statements struct{}

// Open opens a file.
func (statements) Open(name string) (fs.File, error) {
	if file, err := sqlFiles.Open(name); err == nil {
		return file, nil
	}
	return migrations.Parts.Open(name)
}

var (
	loadStatement    = sqlFile("load", "deliveries", "free", "from", "until")
	batchStatement   = sqlFile("batch", "job")
	membersStatement = sqlFile("members", "batch")
	agesStatement    = sqlFile("ages", "deliveries", "at")
)

// holdStatement reads the database's time and the hold of an event subscription.
const holdStatement = `
SELECT clock_timestamp(), coalesce(max(hold), ''), coalesce(bool_or(stop_time_to_live), false)
  FROM postrider_internal.event_subscription_states WHERE subscription_id = $1`

// Loader reads what attempts send: deliveries and batches with their events. It also cuts batches.
type Loader struct {
	LoaderParts
	queue *postgres.Batcher[*loadRequest]
	cuts  cutStates

	now time.Time // the database's at the last query; only Run uses it
}

// LoaderParts are what a Loader needs.
type LoaderParts struct {
	DB       *postgres.DB
	Cache    *catalog.Cache
	Memory   *queue.Memory
	Traffic  *queue.Traffic
	Notifier *queue.Notifier
	postgres.Failpoint
}

// NewLoader makes a loader; its Run loads.
func NewLoader(parts LoaderParts) *Loader {
	return &Loader{
		LoaderParts: parts, queue: postgres.NewBatcher[*loadRequest](), cuts: cutStates{slow: slowSearch},
	}
}

// Load reads what a job is to send. ErrNotFound: its row is no longer the token of the delivery or of a batch, and
// there is nothing to do.
func (l *Loader) Load(ctx context.Context, args queue.AttemptArgs, job queue.JobToken) (*queue.Work, error) {
	if args.Delivery == 0 {
		return l.loadBatch(ctx, &queue.Work{SubscriptionID: args.Subscription, Job: job})
	}
	probations := queue.ProbationsOf(l.Cache.Snapshot(), args.Subscription)
	req := &loadRequest{deliveryID: args.Delivery, job: job, probations: probations, done: make(chan loadResult, 1)}
	l.queue.Add(req)
	select {
	case result := <-req.done:
		return result.work, result.err
	case <-ctx.Done():
		go func() { // release the memory of a result that is still to come
			if result := <-req.done; result.work != nil {
				result.work.Release()
			}
		}()
		return nil, fmt.Errorf("load delivery %d: %w", args.Delivery, ctx.Err())
	}
}

// loadBatch reads the batch of the work's job. It waits for memory for the bodies before it reads them.
func (l *Loader) loadBatch(ctx context.Context, w *queue.Work) (*queue.Work, error) {
	var bytes int64
	err := l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		batch.Queue(batchStatement, w.Job.JobID).QueryRow(func(row pgx.Row) error {
			return row.Scan(&w.BatchID, &w.Attempts, &w.SkippedOffsets, &bytes, &w.NextAttemptAt, &w.NotBefore,
				&w.FirstAttemptAt, &w.LastHold, &w.BatchCreatedAt)
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("batch of job %d: %w", w.Job.JobID, postgres.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the batch of job %d: %w", postgres.ErrUnavailable, w.Job.JobID, err)
	}
	if w.Free, err = l.Memory.Reserve(ctx, bytes); err != nil {
		return nil, err
	}
	if err := l.readMembers(ctx, w); err != nil {
		w.Release()
		return nil, err
	}
	return w, nil
}

// readMembers reads whether an attempt may be made now, and then the members with their events, in one round trip. In
// the other order it could read members whose age a resume has not corrected yet, without the pause.
func (l *Loader) readMembers(ctx context.Context, w *queue.Work) error {
	probations, rows := queue.ProbationsOf(l.Cache.Snapshot(), w.SubscriptionID), map[string]queue.ProbationRow{}
	w.AsOf = time.Now()
	err := l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		queueHold(batch, w)
		batch.Queue(membersStatement, w.BatchID).Query(func(rows pgx.Rows) error {
			return eachMember(rows, func(m *queue.Member) { w.Members = append(w.Members, *m) })
		})
		queueProbations(batch, rows, probations)
	})
	if err != nil {
		return fmt.Errorf("%w: read the events of batch %d: %w", postgres.ErrUnavailable, w.BatchID, err)
	}
	w.SetProbations(probations, rows)
	return nil
}

// queueHold reads the time and the hold of the work's event subscription.
func queueHold(batch *pgx.Batch, w *queue.Work) {
	batch.Queue(holdStatement, w.SubscriptionID).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&w.ReadAt, &w.Hold, &w.TimeToLiveStopped)
		w.LoadedAt = time.Now()
		return err
	})
}

// eachMember calls the function for each row of members.sql.
func eachMember(rows pgx.Rows, each func(*queue.Member)) error {
	var m queue.Member
	var at *time.Time
	_, err := pgx.ForEachRow(rows, []any{
		&m.DeliveryID, &m.SystemID, &m.TimeToLiveSince, &m.EventMissing, &m.Event.Schema, &m.Event.ID, &m.Event.Type,
		&m.Event.Subject, &m.Event.Source, &m.Event.DataVersion, &m.Event.Body, &at, &m.Event.Trace.Parent,
		&m.Event.Trace.State,
	}, func() error {
		m.Event.Time = postgres.TimeOrNone(at)
		each(&m)
		m.Event.Body = nil // the next row must not write into it
		return nil
	})
	return err
}

// loadRequest is a delivery that is loaded together with others.
type loadRequest struct {
	deliveryID int64
	job        queue.JobToken
	probations []queue.Probation
	old        bool // its event is of another day than those that were read
	done       chan loadResult
}

type loadResult struct {
	work *queue.Work
	err  error
}

// Run loads deliveries in groups until ctx ends. Bodies that do not fit into the memory are read again when memory was
// released.
func (l *Loader) Run(ctx context.Context) {
	l.queue.Run(ctx, postgres.AtMost[*loadRequest](loadGroup), func(group []*loadRequest) {
		for len(group) > 0 {
			free := l.Memory.Wait(ctx)
			if ctx.Err() != nil {
				respondAll(group, fmt.Errorf("%w: this node is stopping", postgres.ErrUnavailable))
				return
			}
			group = l.load(group, free)
		}
	})
}

// load completes the requests that fit into the free memory and returns the others.
func (l *Loader) load(group []*loadRequest, free int64) (rest []*loadRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	found, err := l.query(ctx, group, free)
	if err != nil {
		respondAll(group, fmt.Errorf("%w: load deliveries: %w", postgres.ErrUnavailable, err))
		return nil
	}
	for _, req := range group {
		work := found[req.deliveryID]
		switch {
		case work == nil || work.Job.JobID != req.job.JobID:
			req.done <- loadResult{err: fmt.Errorf("delivery %d: %w", req.deliveryID, postgres.ErrNotFound)}
		case work.old:
			req.old = true
			rest = append(rest, req)
		case work.Members[0].Event.Body == nil && !work.Members[0].EventMissing:
			rest = append(rest, req)
		default:
			work.Free = l.Memory.Take(int64(len(work.Members[0].Event.Body)))
			req.done <- loadResult{work: &work.Work}
		}
	}
	return rest
}

// loaded is a row of load.sql.
type loaded struct {
	queue.Work
	old bool // see loadRequest
}

func (l *Loader) query(ctx context.Context, group []*loadRequest, free int64) (map[int64]*loaded, error) {
	ids := postgres.Column(group, func(req *loadRequest) int64 { return req.deliveryID })
	found, probations := make(map[int64]*loaded, len(group)), map[string]queue.ProbationRow{}
	from, to := l.days(group)
	asOf := time.Now()
	err := l.DB.ReadKept(ctx, func(batch *pgx.Batch) {
		batch.Queue(loadStatement, ids, free, from, to).Query(func(rows pgx.Rows) error { return readLoaded(rows, found) })
		queueProbations(batch, probations,
			postgres.Column(group, func(req *loadRequest) []queue.Probation { return req.probations })...)
	})
	if err != nil {
		return nil, err
	}
	for _, req := range group {
		if work := found[req.deliveryID]; work != nil && work.Job.JobID == req.job.JobID {
			work.Job, work.AsOf = req.job, asOf
			work.SetProbations(req.probations, probations)
			l.now = work.ReadAt
		}
	}
	return found, nil
}

// days are yesterday and today, or all days if an event of the group is of another day.
func (l *Loader) days(group []*loadRequest) (from, to pgtype.Date) {
	if l.now.IsZero() || slices.ContainsFunc(group, func(req *loadRequest) bool { return req.old }) {
		return pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
			pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	today := l.now.UTC()
	return pgtype.Date{Time: today.AddDate(0, 0, -1), Valid: true}, pgtype.Date{Time: today, Valid: true}
}

func readLoaded(rows pgx.Rows, found map[int64]*loaded) error {
	var w loaded
	var m queue.Member
	var job *int64
	var at *time.Time
	_, err := pgx.ForEachRow(rows, []any{
		&m.DeliveryID, &w.SubscriptionID, &job, &m.SystemID, &w.Attempts, &w.SkippedOffsets, &m.TimeToLiveSince,
		&w.NextAttemptAt, &w.NotBefore, &w.FirstAttemptAt, &w.ReadAt, &m.EventMissing, &m.Event.Schema, &m.Event.ID,
		&m.Event.Type, &m.Event.Subject, &m.Event.Source, &m.Event.DataVersion, &at, &m.Event.Trace.Parent,
		&m.Event.Trace.State, &w.Hold, &w.TimeToLiveStopped, &w.LastHold, &m.Event.Body, &w.old,
	}, func() error {
		if job == nil {
			return nil
		}
		m.Event.Time = postgres.TimeOrNone(at)
		work := new(loaded)
		*work = w
		work.Job.JobID, work.LoadedAt = *job, time.Now()
		work.SetMember(&m)
		found[m.DeliveryID] = work
		w.NotBefore, w.FirstAttemptAt, m.Event.Body = nil, nil, nil // the next row must not write into these
		return nil
	})
	return err
}

func respondAll(group []*loadRequest, err error) {
	for _, req := range group {
		req.done <- loadResult{err: err}
	}
}

// TimeToLiveSince returns since when the time to live of deliveries has passed, at a time of the database's clock. That
// is later than what Load read if a pause that stops the time to live has begun meanwhile. It omits deliveries that
// have ended.
func (l *Loader) TimeToLiveSince(ctx context.Context, deliveries []int64, at time.Time) (map[int64]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found := make(map[int64]time.Time, len(deliveries))
	rows, _ := l.DB.Query(ctx, agesStatement, deliveries, at) // its error is the rows'
	var id int64
	var since time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &since}, func() error { found[id] = since; return nil }); err != nil {
		return nil, postgres.Outage("read the ages of deliveries", err)
	}
	return found, nil
}
