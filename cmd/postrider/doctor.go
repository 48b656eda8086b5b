package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/catalog"
	"postrider/cmd/postrider/terminal"
	"postrider/migrations"
	"postrider/postgres"
	"postrider/query"
)

type doctorCmd struct {
	databaseFlags
	terminal.OutputFlag
	encryptionFlags
	egressFlags
	MaxConns int      `help:"Connections that each node may have, as for serve." default:"16" env:"POSTRIDER_MAX_CONNS"`
	Endpoint []string `help:"Also check whether the service may call this URL, and connect to it from here; nothing is sent." placeholder:"URL"`
}

// Help is shown by doctor --help.
func (doctorCmd) Help() string {
	return `Nothing is changed. Each finding is ok, warn or fail, with what to do. The exit code is 1 if a check fails. ` +
		`docs/reference/cli.md lists the checks.
Stored endpoints are checked by their addresses (50 hosts at most); nothing connects to them.
Use the same --allow-cidr, --allow-http, --delivery-proxy, --max-conns and encryption key as serve, which may come ` +
		`from the environment.

Examples:
  postrider doctor
  postrider doctor -o json | jq '.[] | select(.level != "ok")'
  postrider doctor --endpoint https://billing.example.com/events`
}

const ok, warn, fail = "ok", "warn", "fail" // levels of a finding

// finding is the result of one check.
type finding struct {
	Level  string `json:"level"`
	Check  string `json:"check"`
	Says   string `json:"says"`
	Remedy string `json:"remedy"` // "" if it is ok
}

type findings []finding

// problem is a finding if it exists.
type problem struct {
	exists              bool
	level, says, remedy string
}

// check adds the problems that exist, or else that the check is ok, unless there is nothing to say about that.
func (f *findings) check(check, says string, problems ...problem) {
	wrong := false
	for _, p := range problems {
		if p.exists {
			wrong = true
			*f = append(*f, finding{p.level, check, p.says, p.remedy})
		}
	}
	if !wrong && says != "" {
		*f = append(*f, finding{ok, check, says, ""})
	}
}

func (f *findings) ok(check, format string, args ...any) {
	f.check(check, fmt.Sprintf(format, args...))
}

func (f *findings) warn(check, says, remedy string) {
	f.check(check, "", problem{true, warn, says, remedy})
}

func (f *findings) fail(check, says, remedy string) {
	f.check(check, "", problem{true, fail, says, remedy})
}

func (f findings) count(level string) (n int) {
	for _, one := range f {
		if one.Level == level {
			n++
		}
	}
	return n
}

// errUnwell is returned after findings that failed were printed.
var errUnwell = errors.New("something has to be done, see above")

// Run executes doctor.
func (c *doctorCmd) Run(ctx context.Context) error {
	if err := c.require(); err != nil {
		return err
	}
	if _, err := c.proxy(); err != nil {
		return err
	}
	var found findings
	c.look(ctx, &found)
	for _, url := range c.Endpoint {
		checkEgress(ctx, &found, url, c.egressFlags)
	}
	if err := c.Print(found, func(w io.Writer) { printFindings(w, found) }); err != nil {
		return err
	}
	if found.count(fail) > 0 {
		return errUnwell
	}
	return nil
}

func printFindings(w io.Writer, found findings) {
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, terminal.OneLine(f.Says))
		if f.Remedy != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", terminal.OneLine(f.Remedy))
		}
	}
	fmt.Fprintf(w, "(%d ok, %d to watch, %d to fix)\n", found.count(ok), found.count(warn), found.count(fail))
}

// look goes as far as the database lets it.
func (c *doctorCmd) look(ctx context.Context, found *findings) {
	pool, err := c.openPool(ctx, 2)
	if err != nil {
		found.fail("connection", fmt.Sprintf("the database URL cannot be used: %v", err),
			"write it as postgres://user:password@host:5432/name")
		return
	}
	defer pool.Close()
	if !c.reach(ctx, found, pool) {
		return
	}
	queried := time.Now()
	seen, err := query.ReadServer(ctx, pool)
	if err != nil {
		found.fail("server", fmt.Sprintf("the server's state cannot be read: %v", err), "read PostgreSQL's log")
		return
	}
	checkServer(found, seen, queried.Add(time.Since(queried)/2))
	checkDisk(found, postgres.ProbeDisk(ctx, pool))
	if c.lookAtOwn(ctx, found, pool, seen) {
		checkStored(ctx, found, pool, c.egressFlags)
	}
}

// reach checks whether the database answers, and for a pooler before it.
func (c *doctorCmd) reach(ctx context.Context, found *findings, pool *pgxpool.Pool) bool {
	err := pool.Ping(ctx)
	rejected := poolerRejection(err, c.PgBouncer)
	if err != nil && rejected == nil {
		found.fail("connection", fmt.Sprintf("the database does not answer: %v", err),
			"check host, port, user and password of POSTRIDER_DATABASE_URL, and that PostgreSQL runs")
		return false
	}
	if err == nil {
		rejected = c.checkPooler(ctx, pool)
	}
	if rejected != nil {
		found.fail("pooler", rejected.Error(), "set --pgbouncer if the URL is PgBouncer's, or use PostgreSQL's own URL")
		return false
	}
	if !c.PgBouncer {
		found.ok("pooler", "none before the database that drops settings")
		return true
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	if err != nil {
		found.fail("pooler", err.Error(), "read PgBouncer's log")
		return false
	}
	found.check("pooler", "PgBouncer, and the role has the settings that it does not pass on", problem{
		statements != "", warn, "PgBouncer passes no session settings on, and the role does not have them",
		"run: " + statements,
	})
	return true
}

// lookAtOwn checks what postrider has in the database, and reports whether that can be read.
func (c *doctorCmd) lookAtOwn(ctx context.Context, found *findings, pool *pgxpool.Pool, seen *query.Checkup) bool {
	status, err := migrations.ReadStatus(ctx, pool)
	switch {
	case err != nil:
		found.fail("schema", fmt.Sprintf("its version cannot be read: %v", err),
			"connect as the role that migrated the database, or give this one rights on schema postrider_internal")
		return false
	case status.Current > status.Target:
		found.warn("schema",
			fmt.Sprintf("the database is at version %d, this program knows %d", status.Current, status.Target),
			"use the program that the nodes run: this one is older")
	case !status.Ready():
		found.fail("schema",
			fmt.Sprintf("the database is at version %d, this program needs %d", status.Current, status.Target),
			"run: postrider migrate up")
		return false
	default:
		found.ok("schema", "version %d, which this program knows", status.Current)
	}
	if err := seen.ReadOwn(ctx, pool,
		[]string{migrations.ReaderRole, migrations.PublisherRole, migrations.OperatorRole}); err != nil {
		found.fail("tables", fmt.Sprintf("what is in the database cannot be read: %v", err),
			"connect as the role that migrated the database")
		return false
	}
	if !checkRights(found, seen) {
		return false
	}
	seen.Overdue, _ = query.Overdue(ctx, pool) // a database that takes no writes has a finding of its own
	checkTables(found, seen)
	checkHolders(found, seen)
	checkPartitions(found, seen)
	checkConnections(found, seen, c.MaxConns)
	checkNodes(found, seen)
	c.tryKey(ctx, found, pool)
	return true
}

func (c *doctorCmd) tryKey(ctx context.Context, found *findings, pool *pgxpool.Pool) {
	if c.EncryptionKey == "" {
		found.warn("encryption key", "not tried: POSTRIDER_ENCRYPTION_KEY is not set here",
			"set it to the service's key to see whether it opens what is sealed")
		return
	}
	sealer, err := c.sealer()
	if err != nil {
		found.fail("encryption key", err.Error(), "set POSTRIDER_ENCRYPTION_KEY to the key that the database was set up with")
		return
	}
	err = catalog.TryKey(ctx, pool, sealer)
	nothing := errors.Is(err, catalog.ErrNothingSealed)
	found.check("encryption key", terminal.Either(nothing, fmt.Sprint(err), "it opens what is sealed"), problem{
		err != nil && !nothing, fail, fmt.Sprint(err), "set POSTRIDER_ENCRYPTION_KEY to the key that the database was set " +
			"up with; without it endpoints and access keys cannot be read",
	})
}
