package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

// findings are the findings of checks in their order.
type findings []finding

// check adds the problems of a check that exist. Without one, it adds the message well at level ok, unless it is "". It
// returns whether no problem has level fail.
func (f *findings) check(name, well string, problems ...finding) bool {
	before, passed := len(*f), true
	for _, p := range problems {
		if p.Level != "" {
			p.Check = name
			*f, passed = append(*f, p), passed && p.Level != fail
		}
	}
	if len(*f) == before && well != "" {
		*f = append(*f, finding{ok, name, well, ""})
	}
	return passed
}

// failIf and warnIf are a problem that exists under a condition: otherwise it has no level.
func failIf(exists bool, message, remedy string) finding {
	return finding{Level: terminal.Either(exists, fail, ""), Message: message, Remedy: remedy}
}

func warnIf(exists bool, message, remedy string) finding {
	return finding{Level: terminal.Either(exists, warn, ""), Message: message, Remedy: remedy}
}

// failed adds an error, and returns whether there is one. what is what failed; "" if the error has it.
func (f *findings) failed(check, what string, err error, remedy string) bool {
	return !f.check(check, "", failIf(err != nil, fmt.Sprint(what, err), remedy))
}

func (f findings) count(level string) int {
	return len(slices.DeleteFunc(slices.Clone(f), func(one finding) bool { return one.Level != level }))
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
	if f.failed("connection", "the database URL is invalid: ", err,
		"write it as postgres://user:password@host:5432/name") {
		return
	}
	defer pool.Close()
	if !c.checkConnection(ctx, f, pool) {
		return
	}
	queried := time.Now()
	seen, err := query.ReadServer(ctx, pool)
	if f.failed("server", "the server's state cannot be read: ", err, "read PostgreSQL's log") {
		return
	}
	f.checkServer(seen, queried.Add(time.Since(queried)/2))
	writable := postgres.CheckWritable(ctx, pool)
	if e, readOnly := errors.AsType[*postgres.ReadOnlyError](writable); readOnly {
		f.check("writes", "", failIf(true, "the database accepts no writes: "+e.Cause, e.Remedy))
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
	if err != nil && rejected == nil {
		return f.check("connection", "", failIf(true, postgres.ConnectError(err).Error(),
			"check host, port, user and password of POSTRIDER_DATABASE_URL, and that PostgreSQL runs"))
	}
	if err == nil {
		rejected = c.checkPooler(ctx, pool)
	}
	if f.failed("pooler", "", rejected, "set --pgbouncer if the URL is PgBouncer's, or use PostgreSQL's own URL") {
		return false
	}
	if !c.PgBouncer {
		return f.check("pooler", "no pooler that drops session settings")
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	return !f.failed("pooler", "", err, "read PgBouncer's log") &&
		f.check("pooler", "PgBouncer drops session settings, and the role has them",
			warnIf(statements != "", "PgBouncer drops session settings, and the role lacks them: statements may run "+
				"functions that another login created in schema public", "run: "+statements))
}

// checkSchema checks postrider's own tables, and reports whether they can be read.
func (c *doctorCmd) checkSchema(ctx context.Context, f *findings, pool *pgxpool.Pool, seen *query.Checkup) bool {
	status, err := migrations.ReadStatus(ctx, pool)
	if f.failed("schema", "its version cannot be read: ", err,
		asMigrator+", or grant this role rights on schema postrider_internal") {
		return false
	}
	other := fmt.Sprintf("the database is at version %d, this program needs %d", status.Current, status.Target)
	newer := status.Current > status.Target
	if !f.check("schema", fmt.Sprintf("version %d, as this program needs", status.Current),
		warnIf(newer, other, "run the doctor of the nodes' version: this program is older"),
		failIf(!newer && !status.Ready(), other, "run: postrider migrate up")) {
		return false
	}
	missing, err := migrations.MissingRights(ctx, pool)
	if err == nil {
		err = seen.ReadOwn(ctx, pool)
	}
	if f.failed("tables", "postrider's tables cannot be read: ", err, asMigrator) || !f.checkRights(seen, missing) {
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
	sealer, err := c.sealer()
	if err != nil && len(c.QueryDatabaseURL) == 0 {
		return // the encryption key has its own finding
	}
	runner, err := sqlquery.NewRunner(postgres.NewDB(pool), sealer, c.queryFlags.options())
	if f.failed("queries", "", err, "write POSTRIDER_QUERY_DATABASE_URL as postgres://user:password@host:5432/name") {
		return
	}
	roles, err := runner.Check(ctx)
	problems := []finding{warnIf(err != nil, fmt.Sprintf("users cannot run queries: %v", err),
		terminal.Either(errors.Is(err, postgres.ErrUnavailable), "check host and port of POSTRIDER_QUERY_DATABASE_URL, "+
			"or of POSTRIDER_DATABASE_URL without it", sqlquery.CreateRemedy))}
	remedy := terminal.Either(len(c.QueryDatabaseURL) > 0,
		"correct the role; docs/operate/access.md has the statements", sqlquery.CreateRemedy)
	for _, wrong := range roles {
		problems = append(problems, warnIf(true, wrong.Error(), cmp.Or(wrong.Remedy, remedy)))
	}
	f.check("queries", "the login roles for queries have the reader's rights", problems...)
}

func (c *doctorCmd) checkEncryption(ctx context.Context, f *findings, pool *pgxpool.Pool) {
	const check, remedy = "encryption key", "set POSTRIDER_ENCRYPTION_KEY to the key of the nodes; without it endpoints " +
		"and access keys cannot be decrypted"
	if c.EncryptionKey == "" {
		f.check(check, "", warnIf(true, "not checked: POSTRIDER_ENCRYPTION_KEY is not set", remedy))
		return
	}
	sealer, err := c.sealer()
	if err == nil {
		err = catalog.TryKey(ctx, pool, sealer)
	}
	empty := errors.Is(err, catalog.ErrNothingSealed)
	f.check(check, terminal.Either(empty, fmt.Sprint(err), "it decrypts the stored secrets"),
		failIf(err != nil && !empty, fmt.Sprint(err), remedy))
}
