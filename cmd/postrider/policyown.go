package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/policy"
	"postrider/server"
	"postrider/store"
)

func policyURL(name string) string { return idURL("/v1/policies", name) }

type policyPutCmd struct {
	restFlags
	ifMatchFlag
	Name string `arg:"" help:"Name of the policy; no built-in one's."`
	File string `short:"f" required:"" help:"JSON as policy show -o json prints it, and as PUT /v1/policies/{name} takes it; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by policy put --help.
func (policyPutCmd) Help() string {
	return `Creates or replaces a policy of your own. Every node uses it within a second, also for pending deliveries.
What the file leaves out takes its default, see docs/policies.md.

Example:
  postrider policy show ga-2021 -o json > mine.json
  postrider policy put mine -f mine.json
  postrider policy explain mine --status 404
  postrider policy put mine -f mine.json --if-match "$(postrider policy show mine -o json | jq -r .etag)"`
}

// Run executes policy put.
func (c *policyPutCmd) Run(ctx context.Context) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	body, err := readFileOrInput(c.File)
	if err != nil {
		return err
	}
	if _, err := server.ReadPolicy(c.Name, body); err != nil {
		return usagef("%s: %v", c.File, err)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	before := client.call(ctx, http.MethodGet, policyURL(c.Name), nil, nil)
	if before != nil && !isStatus(before, http.StatusNotFound) {
		return before
	}
	var now object
	if err := client.call(ctx, http.MethodPut, policyURL(c.Name), json.RawMessage(body), &now, c.headers()...); err != nil {
		return err
	}
	return c.print(now, func(w io.Writer) {
		fmt.Fprintf(w, "Retry policy %s was %s.\n", c.Name, either(before != nil, "made", "replaced"))
	})
}

type policyDeleteCmd struct {
	restFlags
	ifMatchFlag
	confirmFlag
	Name string `arg:"" help:"Name of the policy."`
}

// Help is shown by policy delete --help.
func (policyDeleteCmd) Help() string {
	return `A policy that event subscriptions use is not deleted; they are named.

Examples:
  postrider policy delete mine
  postrider policy delete mine --yes`
}

// Run executes policy delete.
func (c *policyDeleteCmd) Run(ctx context.Context) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	if err := c.confirm(func() (string, error) {
		err := c.call(ctx, http.MethodGet, policyURL(c.Name), nil, nil)
		return fmt.Sprintf("Delete retry policy %s? Its settings are lost for good.", c.Name), err
	}); err != nil {
		return err
	}
	if err := c.call(ctx, http.MethodDelete, policyURL(c.Name), nil, nil, c.headers()...); err != nil {
		return err
	}
	return c.did(gone("name", c.Name), "Retry policy %s was deleted.", c.Name)
}

func builtInError(name string) error {
	return fmt.Errorf("retry policy %q is built in and never changes: copy it under another name", name)
}

// maxFile is as much as a request may have.
const maxFile = 1 << 20

func readFileOrInput(name string) ([]byte, error) { return readUpTo(name, maxFile) }

// readUpTo reads a file, or standard input for -, that has at most so many bytes.
func readUpTo(name string, most int64) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case int64(len(body)) > most:
		return nil, usagef("%s: such a file has at most %d bytes", name, most)
	}
	return body, nil
}

// withPool does something with a database that has the schema. It does not wait for one that is starting, as serve does.
func (f databaseFlags) withPool(ctx context.Context, do func(*pgxpool.Pool) error) error {
	if err := f.require(); err != nil {
		return err
	}
	open := store.OpenPool
	if f.PgBouncer {
		open = store.OpenPoolThroughPgBouncer
	}
	pool, err := open(ctx, f.DatabaseURL, 2)
	if err != nil {
		return usagef("POSTRIDER_DATABASE_URL: %v", err)
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := requireSchema(ctx, pool); err != nil {
		return err
	}
	return do(pool)
}

// asVerb is for verbs that change the database themselves: of the person who runs one, only the database's URL is known.
func asVerb(ctx context.Context) context.Context {
	return store.WithActor(ctx, store.Actor{Name: "cli"})
}

// access does something about who may use the service, in a database that may have no running one.
func (f databaseFlags) access(ctx context.Context, do func(context.Context, *store.Access) error) error {
	err := f.withPool(ctx, func(pool *pgxpool.Pool) error { return do(asVerb(ctx), store.AccessOf(pool)) })
	var no *store.FunctionError
	if errors.As(err, &no) && errors.Is(err, store.ErrInvalid) {
		return usagef("%s", no.Message)
	}
	return err
}

// policyFlags are those of verbs that read one policy: a built-in one needs no server.
type policyFlags struct {
	restFlags
	Name string `arg:"" help:"Name of the policy, for example ga-2021."`
}

// find is the policy, with what the REST API responds of it.
func (f policyFlags) find(ctx context.Context) (*policy.Policy, any, error) {
	if p, ok := policy.Builtin(f.Name); ok {
		return &p, server.DescribePolicy(&p, 0), nil
	}
	var shown object
	err := f.call(ctx, http.MethodGet, policyURL(f.Name), nil, &shown)
	if f.noServer(err) {
		var names []string
		for _, p := range policy.Builtins() {
			names = append(names, p.Name)
		}
		return nil, nil, usagef("no policy %q: the policies are %s; for one of your own: %v",
			f.Name, strings.Join(names, ", "), err)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := readPolicy(shown)
	return p, shown, err
}
