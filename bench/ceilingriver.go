package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"postrider/jobs/queue"
	"postrider/migrations"
	"postrider/postgres"
)

const (
	// What serve has by default, see its flags and jobs.Options.
	ceilingConns    = 16
	ceilingWorkers  = 1000
	ceilingCooldown = 2 * time.Millisecond
	ceilingPoll     = 100 * time.Millisecond
	ceilingGC       = 400

	// preload is the number of jobs for each second: more than the machine can do, so that they do not run out. If they
	// do, the time they took counts.
	preload = 20_000
	// deleteGroup is how many finished jobs one statement deletes at most, as many as the service records at once.
	deleteGroup = 200
)

// riverPost is how many jobs per second River can run here that are nothing but a POST of one event to the sink. The
// jobs are there before the clock starts. A job's worker has the job's arguments, loads nothing else, and posts by
// net/http as the service does. Finished jobs are deleted in groups by one goroutine without a timer, as the service's
// recorder does: so nothing is recorded of an attempt, there is no event in the database, no retry policy and no gate.
// Pool, indexes and client's settings are the service's, commits are durable, and it all runs in this process, which
// does nothing else meanwhile.
func (c ceiling) riverPost(ctx context.Context) (float64, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(ceilingGC))
	pool, err := postgres.OpenPool(ctx, c.url, ceilingConns)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	duration := 2 * c.o.CeilingTime
	jobs := int64(preload*duration.Seconds()) + 1
	if err := insertJobs(ctx, pool, jobs); err != nil {
		return 0, err
	}
	p, err := newPoster(c, pool, jobs)
	if err != nil {
		return 0, err
	}
	return p.run(ctx, duration)
}

func insertJobs(ctx context.Context, pool *pgxpool.Pool, n int64) error {
	const insert = `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts,
		    scheduled_at)
		SELECT 'available', jsonb_build_object('d', n, 's', 1, 'n', 1), $2, $3, 1, 1000, now()
		FROM generate_series(1, $1::bigint) AS n`
	if _, err := pool.Exec(ctx, insert, n, postArgs{}.Kind(), queue.DeliverQueue); err != nil {
		return fmt.Errorf("insert River jobs: %w", err)
	}
	for _, statement := range []string{"VACUUM (ANALYZE) postrider_internal.river_job", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, statement); err != nil && statement != "CHECKPOINT" { // which we may be forbidden
			return fmt.Errorf("settle River's jobs: %w", err)
		}
	}
	return nil
}

// postArgs are what a delivery attempt's job has.
type postArgs struct {
	Delivery     int64 `json:"d"`
	Subscription int64 `json:"s"`
	Number       int   `json:"n"`
}

// Kind implements river.JobArgs.
func (postArgs) Kind() string { return "ceiling" }

// poster is the River worker.
type poster struct {
	river.WorkerDefaults[postArgs]
	pool      *pgxpool.Pool
	endpoint  string
	body      []byte // of one event
	sequence  int    // where its number stands
	transport *http.Transport

	mu       sync.Mutex
	finished []finished
	wake     chan struct{}

	jobs    int64 // there were
	deleted atomic.Int64
	first   chan struct{} // closed with the first group that is gone
	all     chan struct{}
	failed  chan error // the first failure
}

// finished is a job whose request was answered; done is told when its row is gone.
type finished struct {
	id   int64
	done chan struct{}
}

func newPoster(c ceiling, pool *pgxpool.Pool, jobs int64) (*poster, error) {
	endpoint, t, err := c.event()
	if err != nil {
		return nil, err
	}
	body := t.body()
	p := &poster{
		pool: pool, jobs: jobs, endpoint: endpoint.String(), body: body, sequence: bytes.Index(body, t.slots[0].sequence),
		wake: make(chan struct{}, 1), first: make(chan struct{}), all: make(chan struct{}), failed: make(chan error, 1),
		transport: &http.Transport{
			MaxIdleConns: ceilingWorkers, MaxIdleConnsPerHost: ceilingWorkers, DisableCompression: true,
		},
	}
	return p, nil
}

// run has River work for that long and returns the jobs per second.
func (p *poster) run(ctx context.Context, d time.Duration) (float64, error) {
	defer p.transport.CloseIdleConnections()
	client, err := p.client()
	if err != nil {
		return 0, err
	}
	lasting := context.WithoutCancel(ctx) // what runs is finished first
	deleting, stop := context.WithCancel(lasting)
	var running sync.WaitGroup
	running.Go(func() { p.deleteAll(deleting) })
	defer running.Wait()
	defer stop()
	if err := client.Start(lasting); err != nil {
		return 0, fmt.Errorf("start River: %w", err)
	}
	perSecond, err := p.watch(ctx, d)
	stopping, cancel := context.WithTimeout(lasting, stopDeadline)
	defer cancel()
	return perSecond, errors.Join(err, client.Stop(stopping))
}

// watch counts from the first group of jobs that is gone, for that long or until all are.
func (p *poster) watch(ctx context.Context, d time.Duration) (float64, error) {
	if err := p.wait(ctx, p.first, stallLimit); err != nil {
		return 0, err
	}
	began, before := time.Now(), p.deleted.Load()
	err := p.wait(ctx, p.all, d)
	_, perSecond := rate(p.deleted.Load()-before, time.Since(began))
	return perSecond, err
}

// wait is for something to happen, or for so long.
func (p *poster) wait(ctx context.Context, happened <-chan struct{}, d time.Duration) error {
	end := time.NewTimer(d)
	defer end.Stop()
	select {
	case <-happened:
	case <-end.C:
	case err := <-p.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// client has the settings of the service's.
func (p *poster) client() (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, p); err != nil {
		return nil, fmt.Errorf("add the worker: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		ID: "ceiling", Schema: migrations.Schema, Workers: workers,
		Queues:        map[string]river.QueueConfig{queue.DeliverQueue: {MaxWorkers: ceilingWorkers}},
		FetchCooldown: ceilingCooldown, FetchPollInterval: ceilingPoll, FetchOnlyKnownKinds: true, MaxAttempts: 1000,
		// it warns of each job that is deleted when it comes to complete it
		LeaderElectionDisabled: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("set up River: %w", err)
	}
	return client, nil
}

// Work implements river.Worker.
func (p *poster) Work(ctx context.Context, job *river.Job[postArgs]) error {
	if err := p.post(ctx, job.Args.Delivery); err != nil {
		if ctx.Err() == nil {
			p.fail(err)
		}
		return err
	}
	end := finished{id: job.ID, done: make(chan struct{})}
	p.mu.Lock()
	p.finished = append(p.finished, end)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	<-end.done
	return nil
}

// post sends the job's event. Its id is the job's, or the sink would have less to do than for a delivery.
func (p *poster) post(ctx context.Context, number int64) error {
	body := bytes.Clone(p.body)
	digits(body[p.sequence:p.sequence+sequenceDigits], number)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("the sink answered %d", resp.StatusCode)
	}
	return err
}

// deleteAll deletes what has finished, group after group, until ctx ends and nothing is left.
func (p *poster) deleteAll(ctx context.Context) {
	for {
		for group := p.take(); len(group) > 0; group = p.take() {
			p.delete(group)
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (p *poster) take() []finished {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.finished), deleteGroup)
	group := p.finished[:n:n]
	p.finished = p.finished[n:]
	return group
}

func (p *poster) delete(group []finished) {
	ids := make([]int64, len(group))
	for i, f := range group {
		ids[i] = f.id
	}
	if _, err := p.pool.Exec(context.Background(), "DELETE FROM postrider_internal.river_job WHERE id = ANY ($1)",
		ids); err != nil {
		p.fail(fmt.Errorf("delete River's jobs: %w", err))
	}
	for _, f := range group {
		close(f.done)
	}
	gone := p.deleted.Add(int64(len(group)))
	if gone == int64(len(group)) {
		close(p.first)
	}
	if gone == p.jobs {
		close(p.all)
	}
}

func (p *poster) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}
