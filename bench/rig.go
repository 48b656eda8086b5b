package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/pgdev"
)

// rig is a whole postrider on one machine, in processes as its users have them: database, service, sink. The publishers
// run in this process.
type rig struct {
	databaseURL, encryptionKey string
	dir                        string    // of logs, ready files and ledgers
	log                        io.Writer // of progress
	label                      string    // of its lines
	database                   *pgdev.Server
	conn                       *pgx.Conn
	service                    *child
	sink                       *child
	api                        *admin // of the service
	sinkAPI                    *admin

	counted []string // the topics whose deliveries are measured
	// before an event's name in the publishers' ledger: once for each event subscription that is owed it
	prefixes []string
	// "" or, where the database is the user's, the end of the names of what is made in it, to be removed
	borrowed string
	topics   []madeTopic // what is to be removed
	policies []string
}

type madeTopic struct {
	name          string
	subscriptions []string
}

// rigOptions say what a rig is made of.
type rigOptions struct {
	Binary      string // the postrider program
	DatabaseURL string // of a PostgreSQL that is there; "" starts a private one
	Label       string // stands before lines of progress
	// Before is called when there is a database and nothing else yet.
	Before func(ctx context.Context, r *rig, databaseURL string) error
}

// newRig starts everything, without a topic. After an error nothing of it runs.
func newRig(ctx context.Context, o rigOptions, log io.Writer) (*rig, error) {
	dir, err := os.MkdirTemp("", "postrider-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for ledgers and logs: %w", err)
	}
	r := &rig{dir: dir, log: log, label: o.Label, prefixes: []string{""}}
	r.say("starting")
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, o rigOptions) error {
	url, err := r.startDatabase(ctx, o.DatabaseURL)
	if err != nil {
		return err
	}
	r.databaseURL = url
	if o.Before != nil {
		if err := o.Before(ctx, r, url); err != nil {
			return err
		}
	}
	if r.conn, err = pgx.Connect(ctx, url); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := r.startService(ctx, o.Binary, url); err != nil {
		return err
	}
	r.sink, r.sinkAPI, err = startSink(ctx, r.dir, "sink", o.Binary, "--ledger", r.receivedPath(), "--arrivals",
		r.arrivalsPath())
	return err
}

// startDatabase starts a private PostgreSQL with all of its durability, unless there is one to use. In a database that
// is not ours topics have names of their own, because their events stay.
func (r *rig) startDatabase(ctx context.Context, url string) (string, error) {
	if url != "" {
		r.borrowed = "-" + newRun()
		return url, nil
	}
	var err error
	if r.database, err = pgdev.Start(ctx, pgdev.Options{Durable: true, Log: r.log}); err != nil {
		return "", err
	}
	return r.database.URL("postrider"), r.database.CreateDatabase(ctx, "postrider")
}

func (r *rig) startService(ctx context.Context, binary, url string) error {
	r.encryptionKey = newSecret()
	token, ready := newSecret(), filepath.Join(r.dir, "service.json")
	environment := []string{
		databaseVariable + url, "POSTRIDER_ENCRYPTION_KEY=" + r.encryptionKey, "POSTRIDER_ADMIN_TOKEN=" + token,
	}
	if err := migrate(ctx, r.dir, binary, url); err != nil {
		return err
	}
	var err error
	r.service, err = startChild(r.dir, "service", binary, environment,
		"serve", "--listen", "127.0.0.1:0", "--allow-cidr", "127.0.0.0/8", "--ready-file", ready)
	if err != nil {
		return err
	}
	base, err := r.service.ready(ctx, ready, "api")
	if err != nil {
		return err
	}
	r.api = newAdmin(base, token)
	return nil
}

// databaseVariable says to postrider where its database is.
const databaseVariable = "POSTRIDER_DATABASE_URL="

func migrate(ctx context.Context, dir, binary, url string) error {
	migrating, err := startChild(dir, "migrate", binary, []string{databaseVariable + url}, "migrate", "up")
	if err != nil {
		return err
	}
	return migrating.wait(ctx)
}

// startSink starts a sink in a process of its own. After an error it does not run.
func startSink(ctx context.Context, dir, name, binary string, more ...string) (*child, *admin, error) {
	ready := filepath.Join(dir, name+".json")
	sink, err := startChild(dir, name, binary, nil,
		append([]string{"bench", "sink", "--listen", "127.0.0.1:0", "--ready-file", ready}, more...)...)
	if err != nil {
		return nil, nil, err
	}
	base, err := sink.ready(ctx, ready, "sink")
	if err != nil {
		return nil, nil, errors.Join(err, sink.stop())
	}
	return sink, newAdmin(base, ""), nil
}

// named is an event subscription to be made.
type named struct {
	name string
	subscription
}

// newTopic makes a topic with event subscriptions, whose deliveries are measured.
func (r *rig) newTopic(ctx context.Context, name string, subscriptions ...named) (target Target, err error) {
	made := madeTopic{name: name + r.borrowed}
	if target.Key, err = r.api.createTopic(ctx, made.name); err != nil {
		return target, err
	}
	defer func() { r.topics = append(r.topics, made) }()
	for _, s := range subscriptions {
		if err := r.api.createSubscription(ctx, made.name, s.name, s.subscription); err != nil {
			return target, err
		}
		made.subscriptions = append(made.subscriptions, s.name)
	}
	r.counted = append(r.counted, made.name)
	target.URL = r.publishURL(made.name)
	return target, nil
}

func (r *rig) publishURL(topic string) string { return r.api.base + "/topics/" + topic + "/api/events" }
func (r *rig) publishedPath() string          { return filepath.Join(r.dir, "published") }
func (r *rig) receivedPath() string           { return filepath.Join(r.dir, "received") }
func (r *rig) arrivalsPath() string           { return filepath.Join(r.dir, "arrivals") }

// guarded runs do. When a process dies meanwhile that should not, its context ends, and how the process ended is the
// error.
func (r *rig) guarded(parent context.Context, do func(ctx context.Context) error) error {
	ctx, release := r.guard(parent)
	defer release()
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && parent.Err() == nil {
		return cause
	}
	return err
}

// guard ends the context it returns, with the reason as its cause, when a process dies that should not.
func (r *rig) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, c := range []*child{r.service, r.sink} {
		go func() {
			select {
			case <-c.done:
				cancel(c.ended())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// compare stops the sink, which completes its ledger, and holds it against the publishers': each event is owed to each
// event subscription.
func (r *rig) compare() (Verdict, error) {
	if err := r.sink.stop(); err != nil {
		return Verdict{}, err
	}
	published, err := ReadLedger(r.publishedPath())
	if err != nil {
		return Verdict{}, err
	}
	received, err := ReadLedger(r.receivedPath())
	if err != nil {
		return Verdict{}, err
	}
	owed := make([]Entry, 0, len(published)*len(r.prefixes))
	for _, prefix := range r.prefixes {
		for _, e := range published {
			owed = append(owed, Entry{ID: prefix + e.ID, Hash: e.Hash})
		}
	}
	return Compare(owed, received), nil
}

// machineBusy is the entry of all processes together in cpu.
const machineBusy = "busy"

// cpu is the CPU time so far of each process that can be looked at, and of the machine, in seconds.
func (r *rig) cpu() map[string]float64 {
	used := map[string]float64{}
	note := func(name string, seconds float64, ok bool) {
		if ok {
			used[name] = seconds
		}
	}
	if r.database != nil {
		seconds, ok := treeSeconds(r.database.PID())
		note("postgres", seconds, ok)
	}
	for name, pid := range map[string]int{"service": r.service.pid(), "sink": r.sink.pid(), "load": os.Getpid()} {
		seconds, ok := cpuSeconds(pid)
		note(name, seconds, ok)
	}
	if busy, idle, ok := machineSeconds(); ok {
		used[machineBusy], used["idle"] = busy, idle
	}
	return used
}

// close ends everything in the reverse order of its start. Processes that are gone already are no error.
func (r *rig) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
	defer cancel()
	var errs []error
	if r.borrowed != "" {
		errs = append(errs, r.removeMade(ctx))
	}
	for _, c := range []*child{r.sink, r.service} {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	for _, a := range []*admin{r.api, r.sinkAPI} {
		if a != nil {
			a.close()
		}
	}
	if r.conn != nil {
		errs = append(errs, r.conn.Close(ctx))
	}
	if r.database != nil {
		errs = append(errs, r.database.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// removeMade leaves nothing in the user's catalogue.
func (r *rig) removeMade(ctx context.Context) error {
	var errs []error
	for _, t := range r.topics {
		errs = append(errs, r.api.remove(ctx, t.name, t.subscriptions))
	}
	for _, name := range r.policies {
		// Deleted event subscriptions stay as rows that name it.
		for _, statement := range []string{
			"UPDATE postrider_internal.event_subscriptions SET retry_policy = 'ga-2018' WHERE retry_policy = $1 " +
				"AND deleted_at IS NOT NULL",
			"DELETE FROM postrider_internal.retry_policies WHERE name = $1",
		} {
			if _, err := r.conn.Exec(ctx, statement, name); err != nil {
				errs = append(errs, fmt.Errorf("remove retry policy %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// newSecret is 32 random bytes in base64: what the service takes as an encryption key, and good for a token.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, as its documentation says
	return base64.StdEncoding.EncodeToString(secret)
}

// pause waits for d; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	sleep(ctx, d)
	return ctx.Err() == nil
}
