package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"postrider/internal/ledger"
	"postrider/internal/pgdev"
)

// system is a complete installation on this machine. Database and nodes are processes, publishers and endpoint run in
// this one.
//
// Its methods return no errors: the first error ends ctx, so that the others return at once, and withSystem returns it.
type system struct {
	ctx     context.Context
	fail    context.CancelCauseFunc
	program *program
	label   string // before lines of progress
	dir     string // of logs, ready files, ledgers

	databaseURL string
	database    *pgdev.Server // nil if the database is the user's
	conn        *pgx.Conn
	environment []string       // of nodes
	nodes       []*child       // the first is the service
	apart       map[int]string // sessions whose CPU time is not PostgreSQL's, with the name of that time
	api, token  string         // of the service
	client      http.Client
	sink        *receiver
	published   *ledger.Ledger

	topics      []string // whose deliveries are measured
	suffix      string   // of names, so that the user's database can be used again
	checkpoints int      // forced so far
}

// withSystem starts a system, with the user's database if there is a URL, and ends it after do.
func withSystem(ctx context.Context, p *program, databaseURL, label string, c *common, do func(*system)) error {
	running, fail := context.WithCancelCause(ctx)
	s := &system{
		ctx: running, fail: fail, program: p, label: label, databaseURL: databaseURL, suffix: "-" + newRunID(),
		apart: map[int]string{}, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallelChanges}},
	}
	c.Command, c.Machine = p.command, thisMachine()
	if databaseURL != "" {
		c.Command = strings.ReplaceAll(p.command, databaseURL, "URL") // it has a password
	}
	s.say("starting")
	if err := s.start(); err != nil {
		fail(err)
	} else {
		do(s)
		c.Settings = s.readSettings()
	}
	err := context.Cause(running)
	fail(nil)
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("bench %s: %w", label, err)
	}
	return nil
}

func (s *system) start() error {
	var err error
	if s.dir, err = os.MkdirTemp("", "postrider-bench-"); err != nil {
		return fmt.Errorf("create a folder for ledgers and logs: %w", err)
	}
	if s.databaseURL == "" {
		if s.database, err = pgdev.Start(s.ctx, pgdev.Options{Durable: true, Log: os.Stderr}); err != nil {
			return err
		}
		if err = s.database.CreateDatabase(s.ctx, "postrider"); err != nil {
			return err
		}
		s.databaseURL = s.database.URL("postrider")
	}
	if s.conn, err = pgx.Connect(s.ctx, s.databaseURL); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	// Without the other variables, migrate up creates no login roles for queries.
	s.environment = []string{"POSTRIDER_DATABASE_URL=" + s.databaseURL}
	if out, err := s.command("migrate", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("migrate up: %w\n%s", err, out)
	}
	s.token = rand.Text() + rand.Text()
	s.environment = append(s.environment, "POSTRIDER_ADMIN_TOKEN="+s.token,
		"POSTRIDER_ENCRYPTION_KEY="+base64.StdEncoding.EncodeToString([]byte((rand.Text() + rand.Text())[:32])))
	if s.published, err = ledger.Create(filepath.Join(s.dir, "published")); err != nil {
		return err
	}
	if s.sink, err = startReceiver(s.ctx, filepath.Join(s.dir, "received")); err != nil {
		return err
	}
	s.api = s.startNode("service")
	return context.Cause(s.ctx)
}

// close ends everything in the reverse order of its start.
func (s *system) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.client.CloseIdleConnections()
	var errs []error
	for _, node := range slices.Backward(s.nodes) {
		errs = append(errs, node.stop(syscall.SIGTERM))
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close(ctx))
	}
	if s.database != nil {
		errs = append(errs, s.database.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// say prints a line of progress.
func (s *system) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, s.label+": "+format+"\n", args...)
}

// check ends the run if there is an error.
func (s *system) check(err error) {
	if err != nil {
		s.fail(err)
	}
}

// waitUntil waits until a time; false if the run ends.
func (s *system) waitUntil(t time.Time) bool { return pause(s.ctx, time.Until(t)) }

// cpu returns the CPU times, see cpuSeconds. That of the service is the sum of its nodes.
func (s *system) cpu() map[string]float64 {
	postgres := 0
	if s.database != nil {
		postgres = s.database.PID()
	}
	processes := map[int]string{os.Getpid(): "load"}
	for _, node := range s.nodes {
		processes[node.cmd.Process.Pid] = "service"
	}
	maps.Copy(processes, s.apart)
	return cpuSeconds(postgres, processes)
}

// settings is a JSON object.
type settings map[string]any

// call sends a request of the management API with in as JSON, and reads the response into out, unless nil.
func (s *system) call(method, path string, in, out any) {
	var body []byte
	if in != nil {
		body, _ = json.Marshal(in)
	}
	text, err := s.send(s.ctx, method, path, "Authorization", "Bearer "+s.token, body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	s.check(err)
}

// send returns the body of a response. Any status but 2xx is an error.
func (s *system) send(ctx context.Context, method, path, header, secret string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.api+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(header, secret)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: response %d: %s", method, path, resp.StatusCode, bytes.TrimSpace(text))
	}
	return text, nil
}

// subscription is an event subscription to create.
type subscription struct {
	name string
	path string   // at the receiver
	more settings // besides the endpoint
}

// bySubject is the filter for a target's subject. It is case-sensitive: the other comparison costs more.
func bySubject(t target) settings {
	return settings{"subjectBeginsWith": t.subject, "isSubjectCaseSensitive": true}
}

// createTopic creates a topic with event subscriptions.
func (s *system) createTopic(name string, more settings, subs ...subscription) target {
	var created struct{ Key1 string }
	s.call(http.MethodPut, "/v1/topics/"+name, more, &created)
	t := target{url: s.api + "/topics/" + name + "/api/events", key: created.Key1}
	for _, sub := range subs {
		s.subscribe(name, sub)
		path, _, _ := strings.Cut(sub.path[1:], "?")
		t.prefixes = append(t.prefixes, path+"/")
	}
	return t
}

// subscribe creates an event subscription without a validation handshake.
func (s *system) subscribe(topic string, sub subscription) {
	in := settings{"endpointUrl": s.sink.url + sub.path, "endpointValidation": "skip"}
	maps.Copy(in, sub.more)
	s.call(http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+sub.name, in, nil)
}

// measuredTopic is createTopic for a topic whose deliveries are measured.
func (s *system) measuredTopic(name string, subs ...subscription) target {
	s.topics = append(s.topics, name+s.suffix)
	return s.createTopic(name+s.suffix, settings{}, subs...)
}

// act pauses or resumes an event subscription.
func (s *system) act(action, topic, name string) {
	s.call(http.MethodPost, "/v1/topics/"+topic+"/subscriptions/"+name+"/"+action, nil, nil)
}

// copyPolicy creates a copy of a retry policy with other settings.
func (s *system) copyPolicy(from, to string, changes settings) {
	var policy settings
	if s.call(http.MethodGet, "/v1/policies/"+from, nil, &policy); s.ctx.Err() == nil {
		maps.Copy(policy, changes)
		s.call(http.MethodPut, "/v1/policies/"+to, policy, nil)
	}
}

const (
	// stallLimit is how long nothing may arrive. The first retries of a failed delivery follow after 10 and 30 s.
	stallLimit   = time.Minute
	databasePoll = 2 * time.Second // longer, because counting pending deliveries is expensive
)

// await polls until done, or until the counter has not changed for stallLimit.
func (s *system) await(counter func() int64, done func() bool) {
	changed, seen := time.Now(), int64(-1)
	for !done() && time.Since(changed) < stallLimit && pause(s.ctx, 100*time.Millisecond) {
		if n := counter(); n != seen {
			changed, seen = time.Now(), n
		}
	}
}

// drain waits until that many events have arrived and the database has recorded it.
func (s *system) drain(events int64) {
	checked := time.Now()
	s.await(s.sink.attempts, func() bool {
		if s.sink.counters().distinct < events && time.Since(checked) < databasePoll {
			return false
		}
		checked = time.Now()
		return s.pending(s.topics) == 0
	})
}

// parallelChanges is how many topics or event subscriptions are created at once.
const parallelChanges = 16

// parallel calls do for 0 … n-1, up to parallelChanges at the same time.
func (s *system) parallel(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(parallelChanges)
	for i := 0; i < n && s.ctx.Err() == nil; i++ {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait()
}

// publishLoad runs a load and do at the same time. It notes accepted events in the ledger.
func (s *system) publishLoad(l *load, do func()) *load {
	var publishing sync.WaitGroup
	l.ledger = s.published
	publishing.Go(func() { l.publish(s) })
	do()
	publishing.Wait()
	if l.published == 0 {
		s.fail(s.nodes[0].explain(fmt.Errorf("no event was accepted: %w", l.firstError)))
	}
	return l
}

const (
	// bulkEvents of bulkBytes each are one request of 640 KB.
	bulkEvents = 2000
	bulkBytes  = 320
	// bulkRequests are in progress at once; more would only wait for the CPUs.
	bulkRequests = 2
)

// publishBulk publishes at least so many small events for each target in large requests of one size, and returns their
// number.
func (s *system) publishBulk(targets []target, each int) int64 {
	requests := max((each+bulkEvents-1)/bulkEvents, 1)
	size := (each + requests - 1) / requests
	l := &load{
		targets: targets, clients: bulkRequests, events: int64(size * requests * len(targets)), eventBytes: bulkBytes,
		eventsPerRequest: size,
	}
	s.say("publishing %d events in advance", l.events)
	s.check(l.publish(s).firstError)
	return l.published
}

// row reads one row of the database.
func (s *system) row(query string, args []any, into ...any) {
	if err := s.conn.QueryRow(s.ctx, query, args...).Scan(into...); err != nil {
		s.fail(fmt.Errorf("query the database: %w", err))
	}
}

func (s *system) readSettings() (names map[string]string) {
	s.row(`SELECT json_build_object('version', current_setting('server_version'), 'fsync', current_setting('fsync'),
		'synchronousCommit', current_setting('synchronous_commit'), 'fullPageWrites', current_setting('full_page_writes'))`,
		nil, &names)
	return names
}

// counts has the deliveries of the measured topics by their state, the size of the write-ahead log so far and of
// postrider's tables and indexes, in bytes, and the counters of endpoint and processes.
type counts struct {
	delivered, deadLettered, otherwise, left, wal, tables int64
	lastEndedAt                                           *time.Time // delivered or dead-lettered
	sink                                                  receiverStats
	cpu                                                   map[string]float64
}

func (s *system) count() counts {
	c := counts{sink: s.sink.counters(), cpu: s.cpu()}
	s.row(`
SELECT count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'dead_lettered'),
       count(*) FILTER (WHERE state NOT IN ('delivered', 'dead_lettered', 'pending')),
       max(finished_at) FILTER (WHERE state IN ('delivered', 'dead_lettered')),
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
         WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind IN ('r', 'm'))
  FROM postrider.deliveries WHERE topic = ANY ($1)`, []any{s.topics},
		&c.delivered, &c.deadLettered, &c.otherwise, &c.lastEndedAt, &c.wal, &c.tables)
	c.left = s.pending(s.topics)
	return c
}

// pending counts the pending deliveries of the topics. The view would also read all ended deliveries. The statement is
// planned for these event subscriptions, or PostgreSQL would read the backlog of others.
func (s *system) pending(topics []string) int64 {
	var n int64
	s.row("SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1)",
		[]any{pgx.QueryExecModeCacheDescribe, s.subscriptionIDs(topics)}, &n)
	return n
}

func (s *system) subscriptionIDs(topics []string) (ids []int64) {
	s.row(`SELECT array_agg(s.id) FROM postrider_internal.event_subscriptions s
		JOIN postrider_internal.topics t ON t.id = s.topic_id WHERE t.name = ANY ($1)`, []any{topics}, &ids)
	return ids
}

// settle vacuums and checkpoints, so that neither disturbs the next measurement.
func (s *system) settle() {
	if _, err := s.conn.Exec(s.ctx, "VACUUM (ANALYZE)"); err != nil {
		s.fail(fmt.Errorf("vacuum the database: %w", err))
	}
	s.checkpoint()
}

// checkpoint forces a checkpoint, if the database user may do that.
func (s *system) checkpoint() {
	_, err := s.conn.Exec(s.ctx, "CHECKPOINT")
	var rejected *pgconn.PgError
	switch {
	case errors.As(err, &rejected) && rejected.Code == "42501": // insufficient_privilege
	case err != nil:
		s.fail(fmt.Errorf("checkpoint: %w", err))
	default:
		s.checkpoints++
	}
}

// schedule replaces the hold of each delivery of a paused topic by a job that is due at that time, like a retry. A
// million real failures would take minutes.
func (s *system) schedule(topic string, due time.Time) {
	const statement = `
WITH jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT nextval('postrider_internal.river_job_id_seq') AS job_id, id, subscription_id
              FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1) AND hold = 'paused') d,
           postrider_internal.attempt_job(d.job_id, $2, d.subscription_id, delivery => d.id, number => 1) j
 RETURNING id, (args ->> 'd')::bigint AS delivery_id
)
UPDATE postrider_internal.deliveries d SET hold = NULL, job_id = jobs.id, next_attempt_at = $2
FROM jobs WHERE d.id = jobs.delivery_id`
	if _, err := s.conn.Exec(s.ctx, statement, s.subscriptionIDs([]string{topic}), due); err != nil {
		s.fail(fmt.Errorf("schedule deliveries: %w", err))
	}
}

// conclude counts deliveries, and compares the ledgers of publishers and endpoint.
func (s *system) conclude(o *outcome) (counts, []arrival) {
	counted := s.count()
	arrivals, err := s.sink.close()
	s.check(errors.Join(err, s.published.Close()))
	verdict, err := ledger.CompareFiles(filepath.Join(s.dir, "published"), filepath.Join(s.dir, "received"))
	s.check(err)
	o.Delivered, o.Left = counted.delivered, counted.left
	o.addVerdict(verdict)
	return counted, arrivals
}
