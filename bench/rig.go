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

// rig is a whole postrider on one machine, in processes as its users have them: database, service, sink. The publishers run
// in this process.
type rig struct {
	dir      string // of logs, ready files and ledgers
	database *pgdev.Server
	conn     *pgx.Conn
	service  *child
	sink     *child
	api      *admin // of the service
	sinkAPI  *admin

	topic, key    string
	subscriptions []string
	counted       []string // the topics whose deliveries are measured
	prefixes      []string // of each event subscription's names in the sink's ledger
	borrowed      bool     // the database is the user's: leave no topic behind
}

// rigOptions say what a rig is made of.
type rigOptions struct {
	Binary      string // the postrider program
	DatabaseURL string // of a PostgreSQL that is there; "" starts a private one
	Arrivals    bool   // the sink notes when each event arrived
}

// newRig starts everything, without a topic. After an error nothing of it runs.
func newRig(ctx context.Context, o rigOptions, log io.Writer) (*rig, error) {
	dir, err := os.MkdirTemp("", "postrider-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for ledgers and logs: %w", err)
	}
	r := &rig{dir: dir, topic: "bench", borrowed: o.DatabaseURL != ""}
	if err := r.start(ctx, o, log); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, o rigOptions, log io.Writer) error {
	url, err := r.startDatabase(ctx, o.DatabaseURL, log)
	if err != nil {
		return err
	}
	if r.conn, err = pgx.Connect(ctx, url); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := r.startService(ctx, o.Binary, url); err != nil {
		return err
	}
	return r.startSink(ctx, o)
}

// startDatabase starts a private PostgreSQL with all of its durability, unless there is one to use. In a database that is
// not ours the topic has a name of its own, because its rows stay.
func (r *rig) startDatabase(ctx context.Context, url string, log io.Writer) (string, error) {
	if url != "" {
		r.topic += "-" + newRun()
		return url, nil
	}
	var err error
	if r.database, err = pgdev.Start(ctx, pgdev.Options{Durable: true, Log: log}); err != nil {
		return "", err
	}
	return r.database.URL("postrider"), r.database.CreateDatabase(ctx, "postrider")
}

func (r *rig) startService(ctx context.Context, binary, url string) error {
	token, ready := newSecret(), filepath.Join(r.dir, "service.json")
	environment := []string{"POSTRIDER_DATABASE_URL=" + url, "POSTRIDER_ENCRYPTION_KEY=" + newSecret(), "POSTRIDER_ADMIN_TOKEN=" + token}
	migrate, err := startChild(r.dir, "migrate", binary, environment, "migrate", "up")
	if err != nil {
		return err
	}
	if err := migrate.wait(ctx); err != nil {
		return err
	}
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

func (r *rig) startSink(ctx context.Context, o rigOptions) (err error) {
	ready := filepath.Join(r.dir, "sink.json")
	args := []string{"bench", "sink", "--listen", "127.0.0.1:0", "--ready-file", ready, "--ledger", r.receivedPath()}
	if o.Arrivals {
		args = append(args, "--arrivals", r.arrivalsPath())
	}
	if r.sink, err = startChild(r.dir, "sink", o.Binary, nil, args...); err != nil {
		return err
	}
	base, err := r.sink.ready(ctx, ready, "sink")
	if err != nil {
		return err
	}
	r.sinkAPI = newAdmin(base, "")
	return nil
}

// subscribe makes the topic and its event subscriptions, all at the one sink. Several of them have a path each, so that the
// sink tells their deliveries apart.
func (r *rig) subscribe(ctx context.Context, subscriptions int) (err error) {
	if r.key, err = r.api.createTopic(ctx, r.topic); err != nil {
		return err
	}
	r.counted = []string{r.topic}
	for i := range subscriptions {
		name, path, prefix := "sink", "/", ""
		if subscriptions > 1 {
			name = fmt.Sprintf("sink-%d", i+1)
			path, prefix = "/"+name, name+"/"
		}
		if err := r.api.createSubscription(ctx, r.topic, name, subscription{EndpointURL: r.sinkAPI.base + path}); err != nil {
			return err
		}
		r.subscriptions, r.prefixes = append(r.subscriptions, name), append(r.prefixes, prefix)
	}
	return nil
}

func (r *rig) publishURL(topic string) string { return r.api.base + "/topics/" + topic + "/api/events" }
func (r *rig) publishedPath() string          { return filepath.Join(r.dir, "published") }
func (r *rig) receivedPath() string           { return filepath.Join(r.dir, "received") }
func (r *rig) arrivalsPath() string           { return filepath.Join(r.dir, "arrivals") }

// guarded runs do. When a process dies meanwhile that should not, its context ends, and how the process ended is the error.
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

// compare stops the sink, which completes its ledger, and holds it against the publishers': each event is owed to each event
// subscription.
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
	if r.borrowed && r.key != "" {
		errs = append(errs, r.api.remove(ctx, r.topic, r.subscriptions))
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
