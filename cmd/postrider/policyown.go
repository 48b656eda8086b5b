package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/policy"
	"postrider/server"
	"postrider/store"
)

type policyPutCmd struct {
	databaseFlags
	outputFlag
	Name string `arg:"" help:"Name of the policy; no built-in one's."`
	ifMatchFlag
	File string `short:"f" required:"" help:"JSON as policy show -o json prints it, and as PUT /v1/policies/{name} takes it; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by policy put --help.
func (policyPutCmd) Help() string {
	return `Makes or replaces a policy of your own in the database. Every node goes by it within a second, also for what is owed already.
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
	p, err := server.ReadPolicy(c.Name, body)
	if err != nil {
		return usagef("%s: %v", c.File, err)
	}
	when, err := c.conditions()
	if err != nil {
		return err
	}
	return c.withPool(ctx, func(pool *pgxpool.Pool) error {
		made, err := store.WritePolicy(asVerb(ctx), pool, p, when...)
		if err != nil {
			return policyError(c.Name, "batching must stay true: ", err)
		}
		now := func() (any, error) {
			stored, err := c.find(ctx, c.Name)
			if err != nil {
				return nil, err
			}
			return server.DescribePolicy(&stored.Policy, stored.Version), nil
		}
		return c.did(now, "Retry policy %s was %s.", c.Name, either(made, "made", "replaced"))
	})
}

type policyDeleteCmd struct {
	databaseFlags
	outputFlag
	ifMatchFlag
	Name string `arg:"" help:"Name of the policy."`
}

// Help is shown by policy delete --help.
func (policyDeleteCmd) Help() string {
	return "A policy that event subscriptions use is not deleted; they are named.\n\nExample:\n  postrider policy delete mine"
}

// Run executes policy delete.
func (c *policyDeleteCmd) Run(ctx context.Context) error {
	when, err := c.conditions()
	if err != nil {
		return err
	}
	return c.withPool(ctx, func(pool *pgxpool.Pool) error {
		if err := store.RemovePolicy(asVerb(ctx), pool, c.Name, when...); err != nil {
			return policyError(c.Name, "", err)
		}
		return c.did(gone("name", c.Name), "Retry policy %s was deleted.", c.Name)
	})
}

// asVerb is for verbs that change the database themselves: whoever runs one is known only as somebody with its URL.
func asVerb(ctx context.Context) context.Context {
	return store.WithActor(ctx, store.Actor{Name: "cli"})
}

func builtInError(name string) error {
	return fmt.Errorf("retry policy %q is built in and never changes: copy it under another name", name)
}

func policyError(name, used string, err error) error {
	var inUse *store.PolicyInUseError
	switch {
	case errors.As(err, &inUse):
		return fmt.Errorf("%s%w", used, inUse)
	case errors.Is(err, store.ErrBuiltIn):
		return builtInError(name)
	case errors.Is(err, store.ErrPrecondition):
		return fmt.Errorf("retry policy %q is not in the version that --if-match names: somebody else has changed or deleted it; nothing was done", name)
	case errors.Is(err, store.ErrNotFound):
		return usagef("no policy %q in the database", name)
	default:
		return err
	}
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

// policies are the built-in ones, and those of the database where there is one.
func (f databaseFlags) policies(ctx context.Context) (list []store.StoredPolicy, err error) {
	if f.DatabaseURL == "" {
		for _, p := range policy.Builtins() {
			list = append(list, store.StoredPolicy{Policy: p})
		}
		return list, nil
	}
	err = f.withPool(ctx, func(pool *pgxpool.Pool) error {
		list, err = store.ReadPolicies(ctx, pool)
		return err
	})
	return list, err
}

// find looks for a policy; the database is asked only for what is not built in.
func (f databaseFlags) find(ctx context.Context, name string) (*store.StoredPolicy, error) {
	if p, ok := policy.Builtin(name); ok {
		return &store.StoredPolicy{Policy: p}, nil
	}
	list, err := f.policies(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
		names = append(names, list[i].Name)
	}
	hint := ""
	if f.DatabaseURL == "" {
		hint = "; for one of your own, set POSTRIDER_DATABASE_URL or --database-url"
	}
	return nil, usagef("no policy %q: the policies are %s%s", name, strings.Join(names, ", "), hint)
}
