package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"postrider/ledger"
	"postrider/pgdev"
)

// system is a complete installation on this machine, with a process each for database, service and endpoint. The
// publishers run in this process.
type system struct {
	binary   string
	log      io.Writer
	printing sync.Mutex
	label    string // before lines of progress
	dir      string // of logs, ready files, ledgers

	databaseURL   string
	database      *pgdev.Server // nil if the database is the user's
	conn          *pgx.Conn
	environment   []string // of the service
	service, sink *child
	nodes         []*child // besides the service, of Pace
	api, sinkAPI  *admin

	topics      []string // whose deliveries are measured
	suffix      string   // of names in the user's database
	checkpoints int      // forced so far
	undo        []func(context.Context) error
}

// withSystem starts a system, with the user's database if there is a URL, and ends it after do.
func withSystem(
	ctx context.Context, binary, databaseURL, label string, log io.Writer, do func(*system) error,
) error {
	dir, err := os.MkdirTemp("", "postrider-bench-")
	if err != nil {
		return fmt.Errorf("create a folder for ledgers and logs: %w", err)
	}
	s := &system{binary: binary, databaseURL: databaseURL, label: label, log: log, dir: dir}
	s.say("starting")
	if err = s.start(ctx); err == nil {
		err = do(s)
	}
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("bench %s: %w", label, err)
	}
	return nil
}

func (s *system) start(ctx context.Context) (err error) {
	if s.databaseURL != "" {
		s.suffix = "-" + newRunID()
	} else {
		if s.database, err = pgdev.Start(ctx, pgdev.Options{Durable: true, Log: s.log}); err != nil {
			return err
		}
		if err = s.database.CreateDatabase(ctx, "postrider"); err != nil {
			return err
		}
		s.databaseURL = s.database.URL("postrider")
	}
	if s.conn, err = pgx.Connect(ctx, s.databaseURL); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	token, key := rand.Text()+rand.Text(), []byte(rand.Text() + rand.Text())[:32]
	s.environment = []string{
		"POSTRIDER_DATABASE_URL=" + s.databaseURL, "POSTRIDER_ADMIN_TOKEN=" + token,
		"POSTRIDER_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString(key),
	}
	if err := s.migrate(); err != nil {
		return err
	}
	var base string
	if s.service, base, err = s.startNode(ctx, "service"); err != nil {
		return err
	}
	s.api = newAdmin(base, token)
	if err := s.startSink(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	s.undo = append(s.undo, func(context.Context) error {
		stop()
		s.api.client.CloseIdleConnections()
		s.sinkAPI.client.CloseIdleConnections()
		return nil
	})
	go s.showProgress(running)
	return nil
}

func (s *system) startNode(ctx context.Context, name string) (node *child, address string, err error) {
	return startServer(ctx, s.dir, name, s.binary, s.environment, "api", "serve", "--allow-cidr", "127.0.0.0/8")
}

// startSink starts this program again, as the endpoint. The child inherits the listener, so it is ready at once.
func (s *system) startSink(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("open the endpoint: %w", err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("open the endpoint: %w", err)
	}
	defer file.Close()
	this, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	s.sinkAPI = newAdmin("http://"+listener.Addr().String(), "")
	s.sink, err = startChild(s.dir, "sink", this, nil, file, "sink", "--ledger", s.receivedPath(), "--arrivals",
		s.arrivalsPath())
	return err
}

// migrate creates the schema without login roles for queries.
func (s *system) migrate() error {
	c, err := startChild(s.dir, "migrate", s.binary, []string{"POSTRIDER_DATABASE_URL=" + s.databaseURL}, nil,
		"migrate", "up")
	if err != nil {
		return err
	}
	if <-c.done; c.err != nil {
		return c.ended()
	}
	return nil
}

func (s *system) publishedPath() string { return filepath.Join(s.dir, "published") }
func (s *system) receivedPath() string  { return filepath.Join(s.dir, "received") }
func (s *system) arrivalsPath() string  { return filepath.Join(s.dir, "arrivals") }

// say prints a line of progress.
func (s *system) say(format string, args ...any) {
	s.printing.Lock()
	defer s.printing.Unlock()
	fmt.Fprintf(s.log, s.label+": "+format+"\n", args...)
}

// endpoint is an event subscription to create, and its path at the receiver.
type endpoint struct {
	subscription, path string
	more               settings
}

// createTopic creates a topic with event subscriptions.
func (s *system) createTopic(ctx context.Context, name string, endpoints ...endpoint) (t target, err error) {
	name += s.suffix
	if t.key, err = s.api.createTopic(ctx, name); err != nil {
		return t, err
	}
	s.onClose("/v1/topics/" + name)
	for _, e := range endpoints {
		if err := s.api.subscribe(ctx, name, e.subscription, s.sinkAPI.base+e.path, e.more); err != nil {
			return t, err
		}
		s.onClose(subscriptionPath(name, e.subscription))
		t.prefixes = append(t.prefixes, e.path[1:]+"/")
	}
	t.url = s.publishURL(name)
	return t, nil
}

// measuredTopic is createTopic for deliveries that are measured.
func (s *system) measuredTopic(ctx context.Context, name string, endpoints ...endpoint) (target, error) {
	s.topics = append(s.topics, name+s.suffix)
	return s.createTopic(ctx, name, endpoints...)
}

func (s *system) publishURL(topic string) string {
	return s.api.base + "/topics/" + topic + "/api/events"
}

// onClose deletes the resource at the end, if the database is the user's.
func (s *system) onClose(path string) {
	if s.database == nil {
		s.undo = append(s.undo, func(ctx context.Context) error {
			return s.api.call(ctx, http.MethodDelete, path, nil, nil)
		})
	}
}

// guarded calls do with a context that ends if the service or the endpoint ends, and returns that error.
func (s *system) guarded(parent context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	for _, c := range []*child{s.service, s.sink} {
		go func() {
			select {
			case <-c.done:
				cancel(c.ended())
			case <-ctx.Done():
			}
		}()
	}
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && parent.Err() == nil {
		return cause
	}
	return err
}

// conclude counts deliveries, stops the endpoint to complete its files, and compares the ledgers.
func (s *system) conclude(ctx context.Context, o *outcome) (counted deliveries, arrivals []arrival, err error) {
	if counted, err = s.countDeliveries(ctx); err != nil {
		return counted, nil, err
	}
	if err := s.sink.stop(); err != nil {
		return counted, nil, err
	}
	published, err := ledger.Read(s.publishedPath())
	if err != nil {
		return counted, nil, err
	}
	received, err := ledger.Read(s.receivedPath())
	if err != nil {
		return counted, nil, err
	}
	o.Delivered, o.Left = counted.delivered, counted.left
	o.addVerdict(ledger.Compare(published, received))
	arrivals, err = readArrivals(s.arrivalsPath())
	return counted, arrivals, err
}

// cpu returns the CPU times, see cpuSeconds.
func (s *system) cpu() map[string]float64 {
	postgres := 0
	if s.database != nil {
		postgres = s.database.PID()
	}
	return cpuSeconds(postgres,
		map[int]string{s.service.cmd.Process.Pid: "service", s.sink.cmd.Process.Pid: "sink", os.Getpid(): "load"})
}

// close ends everything in the reverse order of its start.
func (s *system) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo(ctx))
	}
	for _, c := range append(s.nodes, s.sink, s.service) {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close(ctx))
	}
	if s.database != nil {
		errs = append(errs, s.database.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

const (
	// stallLimit is how long nothing may arrive. The first retries of a failed delivery follow after 10 and 30 s.
	stallLimit       = time.Minute
	sinkPoll         = 100 * time.Millisecond
	databasePoll     = 2 * time.Second // longer, because counting pending deliveries is expensive
	progressInterval = 5 * time.Second
)

// drain waits until that many events have arrived and the database has recorded it, or nothing has arrived for
// stallLimit.
func (s *system) drain(ctx context.Context, events int64) error {
	checked := time.Now()
	return s.awaitSink(ctx, func(stats receiverStats) (bool, error) {
		if stats.Distinct < events && time.Since(checked) < databasePoll {
			return false, nil
		}
		checked = time.Now()
		left, err := s.pending(ctx, s.topics)
		return left == 0, err
	})
}

// awaitSink polls the endpoint until the condition holds, or nothing has arrived for stallLimit.
func (s *system) awaitSink(ctx context.Context, condition func(receiverStats) (bool, error)) error {
	changed, seen := time.Now(), int64(-1)
	for {
		stats, err := s.sinkAPI.stats(ctx)
		if err != nil {
			return err
		}
		if got := stats.Received + stats.NotAcknowledged; got != seen {
			seen, changed = got, time.Now()
		}
		if done, err := condition(stats); done || err != nil || time.Since(changed) > stallLimit {
			return err
		}
		if !pause(ctx, sinkPoll) {
			return ctx.Err()
		}
	}
}

// showProgress prints the number of arrived events every few seconds until ctx ends.
func (s *system) showProgress(ctx context.Context) {
	for before := int64(0); pause(ctx, progressInterval); {
		if stats, err := s.sinkAPI.stats(ctx); err == nil && stats.Distinct != before {
			s.say("%d events have arrived, %.0f/s", stats.Distinct,
				float64(stats.Distinct-before)/progressInterval.Seconds())
			before = stats.Distinct
		}
	}
}

// parallel calls do for 0 … n-1, up to atOnce at the same time.
func parallel(ctx context.Context, atOnce, n int, do func(ctx context.Context, i int) error) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := 0; i < n && running.Err() == nil; i++ {
		group.Go(func() error { return do(running, i) })
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// publishLoad runs a load and do at the same time; an error of do ends the load. It notes accepted events in a ledger.
func (s *system) publishLoad(
	ctx context.Context, o loadOptions, do func(context.Context) error,
) (loaded loadReport, err error) {
	if o.ledger, err = ledger.Open(s.publishedPath()); err != nil {
		return loaded, err
	}
	l, err := newLoad(o)
	if err == nil {
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() (err error) {
			loaded, err = l.publish(ctx)
			return err
		})
		both.Go(func() error { return do(ctx) })
		err = both.Wait()
	}
	if err = errors.Join(err, o.ledger.Close()); err == nil && loaded.published == 0 {
		err = s.service.explain(fmt.Errorf("no event was accepted: %w", loaded.firstError))
	}
	return loaded, err
}

const (
	// bulkEvents of bulkBytes each are one request of 640 KB: 1 MiB is the limit.
	bulkEvents = 2000
	bulkBytes  = 320
	// bulkRequests are in progress at once; more would only wait for the CPUs.
	bulkRequests = 2
)

// publishBulk publishes small events for each target in large requests.
func (s *system) publishBulk(ctx context.Context, targets []target, each int) error {
	run, requests := newRunID(), (each+bulkEvents-1)/bulkEvents
	client, disconnect := newClient(ctx, targets[0], bulkRequests)
	defer disconnect()
	s.say("publishing %d events in advance", each*len(targets))
	return parallel(ctx, bulkRequests, requests*len(targets), func(_ context.Context, i int) error {
		t, first := targets[i/requests], i%requests*bulkEvents
		w, err := newEventWriter(t, bulkBytes)
		if err != nil {
			return err
		}
		var p publication
		p.prepare(t, w, run, int64(i/requests*each+first), min(each-first, bulkEvents), time.Now())
		return p.send(client)
	})
}

// Settings decide whether a commit survives a crash of the machine. They are read from the database.
type Settings struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronousCommit"`
	FullPageWrites    string `json:"fullPageWrites"`
}

// String formats the settings for people.
func (s Settings) String() string {
	return fmt.Sprintf("%s, fsync %s, synchronous_commit %s, full_page_writes %s", s.Version, s.Fsync, s.SynchronousCommit,
		s.FullPageWrites)
}

func (s *system) readSettings(ctx context.Context) (r Settings, err error) {
	const query = `SELECT current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes')`
	if err := s.conn.QueryRow(ctx, query).Scan(&r.Version, &r.Fsync, &r.SynchronousCommit, &r.FullPageWrites); err != nil {
		return r, fmt.Errorf("read the database's settings: %w", err)
	}
	return r, nil
}

// deliveries counts the deliveries of the measured topics by their state.
type deliveries struct {
	delivered, deadLettered, otherwise, left int64
	lastEndedAt                              *time.Time // delivered or dead-lettered
}

func (s *system) countDeliveries(ctx context.Context) (d deliveries, err error) {
	const query = `
SELECT count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'dead_lettered'),
       count(*) FILTER (WHERE state NOT IN ('delivered', 'dead_lettered', 'pending')),
       max(finished_at) FILTER (WHERE state IN ('delivered', 'dead_lettered'))
  FROM postrider.deliveries WHERE topic = ANY ($1)`
	if err := s.conn.QueryRow(ctx, query, s.topics).
		Scan(&d.delivered, &d.deadLettered, &d.otherwise, &d.lastEndedAt); err != nil {
		return d, fmt.Errorf("count deliveries: %w", err)
	}
	d.left, err = s.pending(ctx, s.topics)
	return d, err
}

// pending counts the pending deliveries of the topics. The view would also read all ended deliveries. The statement is
// planned for these event subscriptions, or PostgreSQL would read the backlog of others.
func (s *system) pending(ctx context.Context, topics []string) (n int64, err error) {
	const query = "SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1)"
	ids, err := s.subscriptionIDs(ctx, topics)
	if err == nil {
		err = s.conn.QueryRow(ctx, query, pgx.QueryExecModeCacheDescribe, ids).Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("count pending deliveries: %w", err)
	}
	return n, nil
}

func (s *system) subscriptionIDs(ctx context.Context, topics []string) ([]int64, error) {
	rows, _ := s.conn.Query(ctx, `SELECT s.id FROM postrider_internal.event_subscriptions s
		JOIN postrider_internal.topics t ON t.id = s.topic_id WHERE t.name = ANY ($1)`, topics)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// written has the size of the write-ahead log so far, and of postrider's tables and indexes, in bytes.
type written struct{ wal, tables int64 }

func (s *system) countWritten(ctx context.Context) (w written, err error) {
	const query = `
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
         WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind IN ('r', 'm'))`
	if err := s.conn.QueryRow(ctx, query).Scan(&w.wal, &w.tables); err != nil {
		return w, fmt.Errorf("read the size of the database: %w", err)
	}
	return w, nil
}

// settle vacuums and checkpoints, so that neither disturbs the next measurement.
func (s *system) settle(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum the database: %w", err)
	}
	return s.checkpoint(ctx)
}

// checkpoint forces a checkpoint, if the database user may do that.
func (s *system) checkpoint(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, "CHECKPOINT")
	var rejected *pgconn.PgError
	switch {
	case errors.As(err, &rejected) && rejected.Code == "42501": // insufficient_privilege
		return nil
	case err != nil:
		return fmt.Errorf("checkpoint: %w", err)
	}
	s.checkpoints++
	return nil
}

// schedule replaces the hold of each delivery of a paused topic by a job that is due at that time, like a retry. A
// million real failures would take minutes.
func (s *system) schedule(ctx context.Context, topic string, due time.Time) error {
	const statement = `
WITH jobs AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'scheduled', jsonb_build_object('d', id, 's', subscription_id, 'n', 1), 'deliver', 'deliveries', 1, 1000, $2
      FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1) AND hold = 'paused'
 RETURNING id, (args ->> 'd')::bigint AS delivery_id
)
UPDATE postrider_internal.deliveries d SET hold = NULL, job_id = jobs.id, next_attempt_at = $2
FROM jobs WHERE d.id = jobs.delivery_id`
	ids, err := s.subscriptionIDs(ctx, []string{topic})
	if err == nil {
		_, err = s.conn.Exec(ctx, statement, ids, due)
	}
	if err != nil {
		return fmt.Errorf("schedule deliveries: %w", err)
	}
	return nil
}
