package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"postrider/internal/terminal"
)

// riverCmd measures River without postrider: jobs that only send a request.
type riverCmd struct {
	terminal.OutputFlag
	Duration   time.Duration `help:"Duration of the measurement." default:"15s" range:"1s.."`
	Jobs       int           `help:"Jobs that are inserted before it; 0 = 25,000 for each second." range:"0.."`
	Workers    int           `help:"Jobs that run at once." default:"1000" range:"1.."`
	EventBytes int           `help:"Size of a request's body in bytes." default:"1024" range:"320.."`
}

type riverReport struct {
	Workers       int     `json:"workers"`
	EventBytes    int     `json:"eventBytes"`
	Jobs          int     `json:"jobs"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobsPerSecond"` // requests that arrived
	Checkpoints   int     `json:"checkpoints"`
	common
}

const (
	// riverCooldown is the interval of fetches. Of 1, 5, 20 and 100 ms (the default), 5 was the fastest with 1,000
	// workers.
	riverCooldown = 5 * time.Millisecond
	riverConns    = 16 // as many as a node of postrider has
	insertedJobs  = 10_000
)

// Run inserts the jobs, and measures how fast River works on them: with its own schema and completer, in this process.
// The service of the system has ended before.
func (c *riverCmd) Run(ctx context.Context, p *program) error {
	o := &riverReport{
		Workers: c.Workers, EventBytes: c.EventBytes, Jobs: c.Jobs,
	}
	if o.Jobs == 0 {
		o.Jobs = int(25_000 * c.Duration.Seconds())
	}
	err := withSystem(ctx, p, "", "river", &o.common, func(s *system) {
		s.check(s.nodes[0].stop(syscall.SIGTERM))
		s.check(c.measure(s, o))
	})
	if err != nil {
		return err
	}
	return finish(c.OutputFlag, o, nil)
}

func (c *riverCmd) measure(s *system, o *riverReport) error {
	pool, err := riverPool(s)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, newPoster(s.sink.url+"/river", c.Workers, c.EventBytes))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: c.Workers}},
		FetchCooldown: riverCooldown,
	})
	if err != nil {
		return fmt.Errorf("configure River: %w", err)
	}
	s.say("inserting %d jobs", o.Jobs)
	for inserted := 0; inserted < o.Jobs; inserted += insertedJobs {
		jobs := make([]river.InsertManyParams, min(insertedJobs, o.Jobs-inserted))
		for i := range jobs {
			jobs[i].Args = postArgs{int64(inserted + i)}
		}
		if _, err := client.InsertManyFast(s.ctx, jobs); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	s.settle()
	if err := client.Start(s.ctx); err != nil {
		return fmt.Errorf("start River: %w", err)
	}
	s.await(s.sink.attempts, func() bool { return s.sink.attempts() > 0 })
	s.say("river, %s", c.Duration)
	before, began := s.sink.counters().distinct, time.Now()
	if pause(s.ctx, c.Duration/2) {
		s.checkpoint()
	}
	s.waitUntil(began.Add(c.Duration))
	arrived, took := s.sink.counters().distinct-before, time.Since(began)
	o.Seconds, o.Checkpoints = round(took.Seconds(), 3), s.checkpoints
	o.JobsPerSecond = round(float64(arrived)/took.Seconds(), 1)
	if s.sink.counters().distinct == int64(o.Jobs) {
		err = terminal.Usagef("bench river: all %d jobs ended before %s were over: use more --jobs", o.Jobs, c.Duration)
	}
	return errors.Join(err, client.StopAndCancel(context.WithoutCancel(s.ctx)))
}

// riverPool creates River's schema in its own database, and returns a pool of connections to it.
func riverPool(s *system) (*pgxpool.Pool, error) {
	if err := s.database.CreateDatabase(s.ctx, "river"); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(s.database.URL("river"))
	if err != nil {
		return nil, fmt.Errorf("configure the pool of River: %w", err)
	}
	config.MaxConns = riverConns
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool of River: %w", err)
	}
	migrator, err := rivermigrate.New[pgx.Tx](riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(s.ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("create the schema of River: %w", err)
	}
	return pool, nil
}

type postArgs struct {
	Number int64 `json:"number"`
}

// Kind is the name of River's job.
func (postArgs) Kind() string { return "post" }

// poster is the worker of River that sends an event.
type poster struct {
	river.WorkerDefaults[postArgs]
	url, run string
	writer   eventWriter
	client   http.Client
}

func newPoster(url string, workers, eventBytes int) *poster {
	return &poster{
		url: url, run: newRunID(), writer: newEventWriter(target{}, eventBytes),
		client: http.Client{Transport: &http.Transport{
			MaxIdleConns: workers, MaxIdleConnsPerHost: workers, DisableCompression: true,
		}},
	}
}

// Work sends an event. The job fails if the response is not 200.
func (p *poster) Work(ctx context.Context, job *river.Job[postArgs]) error {
	body := p.writer.append(nil, p.run, job.Args.Number, time.Now())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", p.writer.media)
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("response %d", resp.StatusCode)
	}
	return nil
}
