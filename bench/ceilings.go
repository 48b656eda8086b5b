package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Ceilings are what parts of a delivery reach alone, per second, on the same machine and the same database server,
// right before the scenario. They say how much of a figure is the machine's.
type Ceilings struct {
	// HTTP is the load's own loop against a sink: requests of one event, answered, with nothing between the two.
	HTTP float64 `json:"http"`
	// RiverPost is the least that a delivery can be on this stack: see riverPost.
	RiverPost float64 `json:"riverPost"`
	// Commits are transactions that insert one row of 1 KB each, by 32 sessions at once.
	Commits float64 `json:"commits"`
}

// String is the ceilings for a person.
func (c Ceilings) String() string {
	return fmt.Sprintf("HTTP %.0f requests/s, River + POST %.0f jobs/s, %.0f commits/s", c.HTTP, c.RiverPost, c.Commits)
}

const (
	ceilingDatabase = "postrider_ceilings"
	committers      = 32
)

// measureCeilings has a database and a sink of its own, made and run as those of the scenario are, so that nothing of
// it is left in the scenario's figures.
func (b *run) measureCeilings(ctx context.Context, r *rig, databaseURL string) (err error) {
	r.say("ceilings, %s", 4*b.o.CeilingTime)
	sink, api, err := startSink(ctx, r.dir, "ceiling-sink", b.o.Binary, "--ledger", path.Join(r.dir, "ceilings"))
	if err != nil {
		return err
	}
	api.close()
	defer func() { err = errors.Join(err, sink.stop()) }()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	name := ceilingDatabase + r.borrowed
	fresh, drop, err := createDatabase(ctx, conn, databaseURL, name)
	if err != nil {
		return errors.Join(fmt.Errorf("make a database for the ceilings (--no-ceilings leaves them out): %w", err),
			conn.Close(ctx))
	}
	defer func() { err = errors.Join(err, drop(), conn.Close(context.WithoutCancel(ctx))) }()
	c := ceiling{o: b.o, sink: api.base, url: fresh}
	if err := migrate(ctx, r.dir, b.o.Binary, fresh); err != nil {
		return err
	}
	b.report.Ceilings, err = c.measure(ctx)
	return err
}

// createDatabase makes a database beside the one that conn is connected to, and says where it is.
func createDatabase(
	ctx context.Context, conn *pgx.Conn, beside, name string,
) (address string, drop func() error, err error) {
	parsed, err := url.Parse(beside)
	if err != nil || parsed.Scheme == "" {
		return "", nil, errors.New("the database must be given as postgres://user@host:port/database")
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+quoted); err != nil {
		return "", nil, err
	}
	parsed.Path = "/" + name
	return parsed.String(), func() error {
		if _, err := conn.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+quoted+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop the ceilings' database: %w", err)
		}
		return nil
	}, nil
}

// ceiling is what ceilings are measured with.
type ceiling struct {
	o    Options
	sink string // its base URL
	url  string // of the database
}

func (c ceiling) measure(ctx context.Context) (measured *Ceilings, err error) {
	measured = &Ceilings{}
	for _, each := range []struct {
		of   *float64
		rate func(context.Context) (float64, error)
	}{{&measured.HTTP, c.http}, {&measured.Commits, c.commits}, {&measured.RiverPost, c.riverPost}} {
		if *each.of, err = each.rate(ctx); err != nil {
			return nil, err
		}
	}
	return measured, nil
}

// event is the URL and the request of one event that is published to the sink itself.
func (c ceiling) event() (endpoint *url.URL, t *template, err error) {
	if endpoint, err = url.Parse(c.sink + "/topics/ceiling/api/events"); err != nil {
		return nil, nil, err
	}
	t, err = newTemplate(endpoint, "key", defaultSubject, newRun(), 1, c.o.EventBytes, plainEvent)
	return endpoint, t, err
}

// http is how often the load's clients reach the sink.
func (c ceiling) http(ctx context.Context) (float64, error) {
	return c.counted(ctx, c.o.Clients, func(ctx context.Context, again func() bool) error {
		endpoint, t, err := c.event() // of a run of its own: no id comes twice
		if err != nil {
			return err
		}
		client := wireClient{address: endpoint.Host}
		defer client.close()
		defer context.AfterFunc(ctx, client.cut)()
		for n := int64(0); again(); n++ {
			t.patch(n, time.Now())
			if status, err := client.do(t.request); err != nil || status != 204 {
				return errors.Join(fmt.Errorf("the sink answered %d", status), err)
			}
		}
		return nil
	})
}

// commits is how many transactions of one row the database commits, each for itself.
func (c ceiling) commits(ctx context.Context) (float64, error) {
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return 0, err
	}
	_, err = conn.Exec(ctx,
		"CREATE TABLE ceiling (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return 0, fmt.Errorf("make the table to commit to: %w", err)
	}
	body := []byte(letters(defaultEventBytes))
	return c.counted(ctx, committers, func(ctx context.Context, again func() bool) error {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		for again() {
			if _, err := conn.Exec(ctx, "INSERT INTO ceiling (body) VALUES ($1)", body); err != nil {
				return fmt.Errorf("commit a row: %w", err)
			}
		}
		return nil
	})
}

// counted has that many loops run for the time of a ceiling and returns how often again let one go on, per second.
func (c ceiling) counted(
	ctx context.Context, loops int, loop func(ctx context.Context, again func() bool) error,
) (float64, error) {
	var n atomic.Int64
	began := time.Now()
	again := func() bool {
		if ctx.Err() != nil || time.Since(began) >= c.o.CeilingTime {
			return false
		}
		n.Add(1)
		return true
	}
	errs := make([]error, loops)
	var running sync.WaitGroup
	for i := range loops {
		running.Go(func() { errs[i] = loop(ctx, again) })
	}
	running.Wait()
	_, perSecond := rate(n.Load(), time.Since(began))
	return perSecond, errors.Join(ctx.Err(), errors.Join(errs...))
}
