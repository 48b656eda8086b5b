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

// findings are the findings of checks in their order. A check reports its problems first, then ok.
type findings []finding

// fail, warn and ok report a finding if it exists; ok exists if the check before it has no problem. fail returns
// whether it exists.
func (f *findings) fail(check string, exists bool, message, remedy string) bool {
	return f.add(exists, finding{fail, check, message, remedy})
}

func (f *findings) warn(check string, exists bool, message, remedy string) {
	f.add(exists, finding{warn, check, message, remedy})
}

func (f *findings) ok(check, format string, args ...any) {
	problem := len(*f) > 0 && (*f)[len(*f)-1].Check == check
	f.add(!problem, finding{ok, check, fmt.Sprintf(format, args...), ""})
}

func (f *findings) add(exists bool, one finding) bool {
	if exists {
		*f = append(*f, one)
	}
	return exists
}

func (f findings) count(level string) (n int) {
	for _, one := range f {
		n += terminal.Either(one.Level == level, 1, 0)
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
		found.checkEgress(ctx, url, c.egressFlags)
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
func (c *doctorCmd) checkAll(ctx context.Context, f *findings) {
	pool, err := c.openPool(ctx, 2)
	if f.fail("connection", err != nil, fmt.Sprintf("the database URL is invalid: %v", err),
		"write it as postgres://user:password@host:5432/name") {
		return
	}
	defer pool.Close()
	if !c.checkConnection(ctx, f, pool) {
		return
	}
	queried := time.Now()
	seen, err := query.ReadServer(ctx, pool)
	if f.fail("server", err != nil, fmt.Sprintf("the server's state cannot be read: %v", err), "read PostgreSQL's log") {
		return
	}
	f.checkServer(seen, queried.Add(time.Since(queried)/2))
	writable := postgres.CheckWritable(ctx, pool)
	if e, readOnly := errors.AsType[*postgres.ReadOnlyError](writable); readOnly {
		f.fail("writes", true, "the database accepts no writes: "+e.Cause, e.Remedy)
	}
	if !c.checkSchema(ctx, f, pool, seen) {
		return
	}
	if writable == nil && !unused(seen) { // reported already
		f.checkWrites(postgres.TestWrite(ctx, pool))
	}
	f.checkStored(ctx, pool, c.egressFlags)
}

// checkConnection checks whether the database responds, and whether a pooler changes the session.
func (c *doctorCmd) checkConnection(ctx context.Context, f *findings, pool *pgxpool.Pool) bool {
	err := pool.Ping(ctx)
	rejected := poolerRejection(err, c.PgBouncer)
	if f.fail("connection", err != nil && rejected == nil, fmt.Sprintf("database unavailable: %v", err),
		"check host, port, user and password of POSTRIDER_DATABASE_URL, and that PostgreSQL runs") {
		return false
	}
	if err == nil {
		rejected = c.checkPooler(ctx, pool)
	}
	if f.fail("pooler", rejected != nil, fmt.Sprint(rejected),
		"set --pgbouncer if the URL is PgBouncer's, or use PostgreSQL's own URL") {
		return false
	}
	if !c.PgBouncer {
		f.ok("pooler", "no pooler that drops session settings")
		return true
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	if f.fail("pooler", err != nil, fmt.Sprint(err), "read PgBouncer's log") {
		return false
	}
	f.warn("pooler", statements != "", "PgBouncer drops session settings, and the role lacks them: statements may run "+
		"functions that another login created in schema public", "run: "+statements)
	f.ok("pooler", "PgBouncer drops session settings, and the role has them")
	return true
}

// checkSchema checks postrider's own tables, and reports whether they can be read.
func (c *doctorCmd) checkSchema(ctx context.Context, f *findings, pool *pgxpool.Pool, seen *query.Checkup) bool {
	status, err := migrations.ReadStatus(ctx, pool)
	if f.fail("schema", err != nil, fmt.Sprintf("its version cannot be read: %v", err),
		asMigrator+", or grant this role rights on schema postrider_internal") {
		return false
	}
	other := fmt.Sprintf("the database is at version %d, this program needs %d", status.Current, status.Target)
	newer := status.Current > status.Target
	f.warn("schema", newer, other, "run the doctor of the nodes' version: this program is older")
	if f.fail("schema", !newer && !status.Ready(), other, "run: postrider migrate up") {
		return false
	}
	f.ok("schema", "version %d, as this program needs", status.Current)
	missing, err := migrations.MissingRights(ctx, pool)
	if err == nil {
		err = seen.ReadOwn(ctx, pool)
	}
	if f.fail("tables", err != nil, fmt.Sprintf("postrider's tables cannot be read: %v", err), asMigrator) ||
		!f.checkRights(seen, missing) {
		return false
	}
	seen.Overdue, _ = query.Overdue(ctx, pool) // fails if the database accepts no writes, which has its own finding
	f.checkTables(seen)
	f.checkPartitions(seen)
	f.checkNodes(seen, c.MaxConns)
	c.checkEncryption(ctx, f, pool)
	c.checkQueries(ctx, f, pool)
	return true
}

// checkQueries checks the login roles that run the queries of users.
func (c *doctorCmd) checkQueries(ctx context.Context, f *findings, pool *pgxpool.Pool) {
	remedy := sqlquery.CreateRemedy
	sealer, err := c.sealer()
	if err != nil && len(c.QueryDatabaseURL) == 0 {
		return // the encryption key has its own finding
	}
	runner, err := sqlquery.NewRunner(postgres.NewDB(pool), sealer, c.queryFlags.options())
	if f.fail("queries", err != nil, fmt.Sprint(err),
		"write POSTRIDER_QUERY_DATABASE_URL as postgres://user:password@host:5432/name") {
		return
	}
	wrong, err := runner.Check(ctx)
	f.warn("queries", err != nil, fmt.Sprintf("users cannot run queries: %v", err),
		terminal.Either(errors.Is(err, postgres.ErrUnavailable),
			"check host and port of POSTRIDER_QUERY_DATABASE_URL, or of POSTRIDER_DATABASE_URL without it", remedy))
	if len(c.QueryDatabaseURL) > 0 {
		remedy = "correct the role; docs/operate/access.md has the statements"
	}
	for _, p := range wrong {
		f.warn("queries", true, p.Error(), cmp.Or(p.Remedy, remedy))
	}
	f.ok("queries", "the login roles for queries have the reader's rights")
}

func (c *doctorCmd) checkEncryption(ctx context.Context, f *findings, pool *pgxpool.Pool) {
	const remedy = "set POSTRIDER_ENCRYPTION_KEY to the key of the nodes; without it endpoints and access keys cannot " +
		"be decrypted"
	if c.EncryptionKey == "" {
		f.warn("encryption key", true, "not checked: POSTRIDER_ENCRYPTION_KEY is not set", remedy)
		return
	}
	sealer, err := c.sealer()
	if err == nil {
		err = catalog.TryKey(ctx, pool, sealer)
	}
	unused := errors.Is(err, catalog.ErrNothingSealed)
	f.fail("encryption key", err != nil && !unused, fmt.Sprint(err), remedy)
	f.ok("encryption key", "%s", terminal.Either(unused, fmt.Sprint(err), "it decrypts the stored secrets"))
}
