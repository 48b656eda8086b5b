package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"postrider/cmd/postrider/terminal"
	"postrider/migrations"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create or upgrade the schema. You can run it repeatedly, and from several nodes at once."`
	Status migrateStatusCmd `cmd:"" help:"Show the schema's version and the version that this build needs. The exit code is 1 if it is too old." example:"migrate status -o json"`
}

type migrateUpCmd struct {
	databaseFlags
	logFlags
}

// Help is shown by migrate up --help.
func (migrateUpCmd) Help() string {
	return `Example:
  postrider migrate up --database-url postgres://owner:secret@db:5432/postrider

The role needs CREATE on the database. It also creates the roles postrider_reader, postrider_publisher and
postrider_operator if it may; otherwise it prints the statements for an administrator.`
}

// Run executes migrate up.
func (c *migrateUpCmd) Run(ctx context.Context) error {
	if err := c.require(); err != nil {
		return err
	}
	return migrateUp(ctx, c.databaseFlags, c.logFlags, os.Stdout)
}

func migrateUp(ctx context.Context, database databaseFlags, flags logFlags, out io.Writer) error {
	pool, err := openDatabase(ctx, database, 4, flags.logger())
	if err != nil {
		return err
	}
	defer pool.Close()
	before, _ := migrations.ReadStatus(ctx, pool) // only printed; may fail while another process migrates
	// Notices are printed at once: they may report what the migration waits for.
	if err := terminal.Await("the schema is migrated", func() error { return migrations.Up(ctx, pool, out) }); err != nil {
		return err
	}
	after, err := migrations.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	newer := ""
	if after.Current > after.Target || after.River > migrations.RiverVersion {
		newer = fmt.Sprintf(" A newer release created it (this build has %d and %d); nothing was changed.", after.Target,
			migrations.RiverVersion)
	}
	_, err = fmt.Fprintf(out, "Schema at version %d (was %d), River's at %d.%s\n", after.Current, before.Current,
		after.River, newer)
	return err
}

type migrateStatusCmd struct {
	databaseFlags
	logFlags
	terminal.OutputFlag
}

// Run executes migrate status.
func (c *migrateStatusCmd) Run(ctx context.Context) error {
	if err := c.require(); err != nil {
		return err
	}
	pool, err := openDatabase(ctx, c.databaseFlags, 4, c.logger())
	if err != nil {
		return err
	}
	defer pool.Close()
	status, err := migrations.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	shown := map[string]any{
		"current": status.Current, "target": status.Target, "river": status.River, "ready": status.Ready(),
	}
	err = c.PrintOne(shown, fmt.Sprintf("Schema: version %d, this build needs %d. River: version %d, needs %d.",
		status.Current, status.Target, status.River, migrations.RiverVersion))
	if err == nil && !status.Ready() {
		err = errors.New("the schema is too old: run `postrider migrate up`")
	}
	return err
}
