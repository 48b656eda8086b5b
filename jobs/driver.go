package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"postrider/jobs/queue"
	"postrider/postgres"
)

// driver is River's for pgx, with four differences: jobs are fetched by the store's statement, jobs that are to run
// again get new rows, fetchers are woken by this process too, and the rows of jobs that are known to be gone are not
// queried. River completes each job that returns, and the statement that records an attempt has deleted its row: a
// twelfth of PostgreSQL's time went into finding nothing.
type driver struct {
	*riverpgxv5.Driver
	engine *Engine
}

// GetListener implements riverdriver.Driver.
func (d driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	l := &listener{Listener: d.Driver.GetListener(p), wake: d.engine.parts.Wake}
	if d.engine.options.PollOnly {
		l.Listener = deaf{l.Listener}
	}
	return l
}

// GetExecutor implements riverdriver.Driver.
func (d driver) GetExecutor() riverdriver.Executor {
	return executor{d.Driver.GetExecutor(), d.engine}
}

type executor struct {
	riverdriver.Executor
	engine *Engine
}

// JobGetAvailable implements riverdriver.Executor. River's clock does not matter: a job is due by the database's clock.
// Local jobs of this node's publishes come first, and often there are no others.
func (e executor) JobGetAvailable(
	ctx context.Context, p *riverdriver.JobGetAvailableParams,
) (*riverdriver.JobGetAvailableResult, error) {
	fetched, err := e.next(ctx, p)
	if err != nil {
		return nil, err
	}
	jobs := make([]*rivertype.JobRow, len(fetched))
	for i := range fetched {
		jobs[i] = jobRow(&fetched[i])
	}
	return &riverdriver.JobGetAvailableResult{Jobs: jobs}, nil
}

func (e executor) next(ctx context.Context, p *riverdriver.JobGetAvailableParams) ([]queue.Job, error) {
	parts := &e.engine.parts
	if p.Queue != queue.DeliverQueue {
		return parts.JobRows.Fetch(ctx, p.Queue, p.Kind, p.MaxToLock)
	}
	works, query := parts.Handoff.Next(p.MaxToLock)
	local := postgres.Column(works, func(w *queue.Work) queue.Job { return w.LocalJob(parts.Node) })
	if !query {
		return local, nil
	}
	requested := p.MaxToLock - len(local)
	fetched, err := parts.JobRows.Fetch(ctx, p.Queue, p.Kind, requested)
	switch {
	case err == nil:
		parts.Handoff.Fetched(len(fetched), requested)
	case len(local) > 0: // these must run; the others are fetched next
		parts.Wake.Request(queue.DeliverQueue)
		return local, nil
	}
	return append(local, fetched...), err
}

func jobRow(j *queue.Job) *rivertype.JobRow {
	return &rivertype.JobRow{
		ID: j.ID, Attempt: j.Attempt, AttemptedAt: &j.AttemptedAt, AttemptedBy: j.AttemptedBy, CreatedAt: j.CreatedAt,
		EncodedArgs: j.Args,
		Kind:        j.Kind, MaxAttempts: j.MaxAttempts, Metadata: j.Metadata, Priority: j.Priority, Queue: j.Queue,
		ScheduledAt: j.ScheduledAt,
		State:       rivertype.JobStateRunning,
	}
}

// JobSetStateIfRunningMany implements riverdriver.Executor. It answers the jobs that it found, so none for those that
// are gone.
//
// Jobs that are to run again get new rows: River would reschedule the row there is, and where the answer to that is
// lost it does so once more, seconds later, when the row's next run is under way. Two requests would then be made at
// once.
func (e executor) JobSetStateIfRunningMany(
	ctx context.Context, p *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	left := without(p, e.engine.ended.Take(p.ID))
	if again := putOff(left); len(again) > 0 {
		n, err := e.engine.parts.JobRows.Defer(ctx, again)
		if err != nil || n == len(left.ID) {
			return nil, err
		}
	}
	if len(left.ID) == 0 {
		return nil, nil
	}
	return e.Executor.JobSetStateIfRunningMany(ctx, left)
}

// putOff are the jobs that are to run again. River counts a run that was put off before its attempt began as none.
func putOff(p *riverdriver.JobSetStateIfRunningManyParams) (jobs []queue.Deferred) {
	for i, state := range p.State {
		switch state {
		case rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRetryable:
		default:
			continue
		}
		job := queue.Deferred{Job: p.ID[i], Begun: p.Attempt[i] == nil}
		if p.ScheduledAt[i] != nil {
			job.After = min(max(time.Until(*p.ScheduledAt[i]), 0), time.Minute) // both by the process's clock
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// without is p without the jobs that have ended.
func without(
	p *riverdriver.JobSetStateIfRunningManyParams, ended []bool,
) *riverdriver.JobSetStateIfRunningManyParams {
	if !slices.Contains(ended, true) {
		return p
	}
	return &riverdriver.JobSetStateIfRunningManyParams{
		ID: leave(p.ID, ended), Attempt: leave(p.Attempt, ended), ErrData: leave(p.ErrData, ended),
		FinalizedAt:     leave(p.FinalizedAt, ended),
		MetadataDoMerge: leave(p.MetadataDoMerge, ended), MetadataUpdates: leave(p.MetadataUpdates, ended), Now: p.Now,
		ScheduledAt: leave(p.ScheduledAt, ended), Schema: p.Schema, State: leave(p.State, ended),
	}
}

// leave is the column without the places marked.
func leave[T any](column []T, marked []bool) []T {
	left := make([]T, 0, len(column))
	for i, value := range column {
		if !marked[i] {
			left = append(left, value)
		}
	}
	return left
}
