package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/internal/terminal"
	"postrider/migrations"
)

type doctorCmd struct {
	databaseFlags
	terminal.OutputFlag
	encryptionFlags
	queryFlags
	egressFlags
	MaxConns int      `help:"Limit of connections of each node, as for serve." default:"16" env:"POSTRIDER_MAX_CONNS"`
	Endpoint []string `help:"Also check whether the service may call this URL, and connect to it without sending a request." placeholder:"URL"`
}

func (doctorCmd) Help() string {
	return `It changes nothing; it stores an event of 1 MB and deletes it. Each finding has a level (ok, warn or fail)
and a remedy. If a check fails, the exit code is 1.
It checks the addresses of stored endpoints (up to 50 hosts) without connecting to them.
Use the same --allow-cidr, --allow-http, --delivery-proxy, --max-conns and encryption key as serve, as flags or ` +
		`environment variables.

Examples:
  postrider doctor
  postrider doctor -o json | jq '.[] | select(.level != "ok")'
  postrider doctor --endpoint https://billing.example.com/events`
}

const ok, warn, fail = "ok", "warn", "fail" // levels of a finding

// finding is the result of one check.
type finding struct {
	Level   string `json:"level"`
	Check   string `json:"check"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"` // "" at level ok
}

type findings []finding

// problem is a finding only if it exists.
type problem struct {
	exists                 bool
	level, message, remedy string
}

// check adds the problems that exist. If there are none, it adds a finding of level ok, unless message is "".
func (f *findings) check(check, message string, problems ...problem) {
	before := len(*f)
	for _, p := range problems {
		if p.exists {
			*f = append(*f, finding{p.level, check, p.message, p.remedy})
		}
	}
	if len(*f) == before && message != "" {
		*f = append(*f, finding{ok, check, message, ""})
	}
}

func (f *findings) ok(check, format string, args ...any) {
	f.check(check, fmt.Sprintf(format, args...))
}

func (f *findings) warn(check, message, remedy string) {
	f.check(check, "", problem{true, warn, message, remedy})
}

func (f *findings) fail(check, message, remedy string) {
	f.check(check, "", problem{true, fail, message, remedy})
}

func (f findings) count(level string) (n int) {
	for _, one := range f {
		if one.Level == level {
			n++
		}
	}
	return n
}

// errChecksFailed is returned after the findings were printed.
var errChecksFailed = errors.New("checks failed; fix the findings of level fail")

func (c *doctorCmd) Run(ctx context.Context, std terminal.Streams) error {
	_, err := c.proxy()
	if err := cmp.Or(c.require(), err); err != nil {
		return err
	}
	var found findings
	c.checkAll(ctx, &found)
	for _, url := range c.Endpoint {
		checkEgress(ctx, &found, url, c.egressFlags)
	}
	if err := c.Print(std.Out, found, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, terminal.OneLine(f.Message))
			if f.Remedy != "" {
				fmt.Fprintf(w, "\t\t→ %s\n", terminal.OneLine(f.Remedy))
			}
		}
		fmt.Fprintf(w, "(%d ok, %d warnings, %d failed)\n", found.count(ok), found.count(warn), found.count(fail))
	}); err != nil {
		return err
	}
	if found.count(fail) > 0 {
		return errChecksFailed
	}
	return nil
}

// checkAll runs the checks in an order in which each can rely on those before it, until one makes the rest impossible.
func (c *doctorCmd) checkAll(ctx context.Context, found *findings) {
	pool, err := c.openPool(ctx, 2)
	if err != nil {
		found.fail("connection", fmt.Sprintf("the database URL is invalid: %v", err),
			"write it as postgres://user:password@host:5432/name")
		return
	}
	defer pool.Close()
	if !c.checkConnection(ctx, found, pool) {
		return
	}
	queried := time.Now()
	seen, err := query.ReadServer(ctx, pool)
	if err != nil {
		found.fail("server", fmt.Sprintf("the server's state cannot be read: %v", err), "read PostgreSQL's log")
		return
	}
	checkServer(found, seen, queried.Add(time.Since(queried)/2))
	readOnly := postgres.CheckWritable(ctx, pool)
	if e, ok := errors.AsType[*postgres.ReadOnlyError](readOnly); ok {
		found.fail("writes", "the database accepts no writes: "+e.Cause, e.Remedy)
	}
	if c.checkSchema(ctx, found, pool, seen) {
		if readOnly == nil && !unused(seen) { // reported already
			checkWrites(found, postgres.TestWrite(ctx, pool))
		}
		checkStored(ctx, found, pool, c.egressFlags)
	}
}

// checkConnection checks whether the database responds, and whether a pooler changes the session.
func (c *doctorCmd) checkConnection(ctx context.Context, found *findings, pool *pgxpool.Pool) bool {
	err := pool.Ping(ctx)
	rejected := poolerRejection(err, c.PgBouncer)
	if err != nil && rejected == nil {
		found.fail("connection", fmt.Sprintf("database unavailable: %v", err),
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
		found.ok("pooler", "no pooler that drops session settings")
		return true
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	if err != nil {
		found.fail("pooler", err.Error(), "read PgBouncer's log")
		return false
	}
	found.check("pooler", "PgBouncer drops session settings, and the role has them", problem{
		statements != "", warn, "PgBouncer drops session settings, and the role lacks them: statements may run functions " +
			"that another login created in schema public", "run: " + statements,
	})
	return true
}

// checkSchema checks postrider's own tables, and reports whether they can be read.
func (c *doctorCmd) checkSchema(ctx context.Context, found *findings, pool *pgxpool.Pool, seen *query.Checkup) bool {
	const other = "the database is at version %d, this program needs %d"
	status, err := migrations.ReadStatus(ctx, pool)
	switch {
	case err != nil:
		found.fail("schema", fmt.Sprintf("its version cannot be read: %v", err),
			"connect as the role that migrated the database, or grant this role rights on schema postrider_internal")
		return false
	case status.Current > status.Target:
		found.warn("schema", fmt.Sprintf(other, status.Current, status.Target),
			"run the doctor of the nodes' version: this program is older")
	case !status.Ready():
		found.fail("schema", fmt.Sprintf(other, status.Current, status.Target), "run: postrider migrate up")
		return false
	default:
		found.ok("schema", "version %d, as this program needs", status.Current)
	}
	missing, err := migrations.MissingRights(ctx, pool)
	if err == nil {
		err = seen.ReadOwn(ctx, pool)
	}
	if err != nil {
		found.fail("tables", fmt.Sprintf("postrider's tables cannot be read: %v", err),
			"connect as the role that migrated the database")
		return false
	}
	if !checkRights(found, seen) {
		return false
	}
	checkRoles(found, missing)
	seen.Overdue, _ = query.Overdue(ctx, pool) // fails if the database accepts no writes, which has its own finding
	checkTables(found, seen)
	checkHolders(found, seen)
	checkPartitions(found, seen)
	checkConnections(found, seen, c.MaxConns)
	checkNodes(found, seen)
	c.checkEncryption(ctx, found, pool)
	c.checkQueries(ctx, found, pool)
	return true
}

// checkQueries checks the login roles that run the queries of users.
func (c *doctorCmd) checkQueries(ctx context.Context, found *findings, pool *pgxpool.Pool) {
	const check = "queries"
	remedy := sqlquery.CreateRemedy
	sealer, err := c.sealer()
	if err != nil && len(c.QueryDatabaseURL) == 0 {
		return // the encryption key has its own finding
	}
	runner, err := sqlquery.NewRunner(postgres.NewDB(pool), sealer, c.queryFlags.options())
	if err != nil {
		found.fail(check, err.Error(), "write POSTRIDER_QUERY_DATABASE_URL as postgres://user:password@host:5432/name")
		return
	}
	wrong, err := runner.Check(ctx)
	if err != nil {
		found.warn(check, "users cannot run queries: "+err.Error(), terminal.Either(errors.Is(err, postgres.ErrUnavailable),
			"check host and port of POSTRIDER_QUERY_DATABASE_URL, or of POSTRIDER_DATABASE_URL without it", remedy))
		return
	}
	if len(c.QueryDatabaseURL) > 0 {
		remedy = "correct the role; docs/operate/access.md has the statements"
	}
	problems := make([]problem, len(wrong))
	for i, p := range wrong {
		problems[i] = problem{true, warn, p.Error(), cmp.Or(p.Remedy, remedy)}
	}
	found.check(check, "the login roles for queries have the reader's rights", problems...)
}

func (c *doctorCmd) checkEncryption(ctx context.Context, found *findings, pool *pgxpool.Pool) {
	const check, remedy = "encryption key", "set POSTRIDER_ENCRYPTION_KEY to the key of the nodes; without it endpoints " +
		"and access keys cannot be decrypted"
	if c.EncryptionKey == "" {
		found.warn(check, "not checked: POSTRIDER_ENCRYPTION_KEY is not set", remedy)
		return
	}
	sealer, err := c.sealer()
	if err == nil {
		err = catalog.TryKey(ctx, pool, sealer)
	}
	unused := errors.Is(err, catalog.ErrNothingSealed)
	found.check(check, terminal.Either(unused, fmt.Sprint(err), "it decrypts the stored secrets"), problem{
		err != nil && !unused, fail, fmt.Sprint(err), remedy,
	})
}
