package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/terminal"
	"postrider/migrations"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create or upgrade the schema. You can run it repeatedly, and from several nodes at once."`
	Status migrateStatusCmd `cmd:"" help:"Show the schema's version and the version that this build needs. The exit code is 1 if it is too old." example:"migrate status -o json"`
}

type migrateUpCmd struct {
	databaseFlags
	AdminDatabaseURL string `help:"URL of the same database with a role that has CREATEROLE. Only the roles are created with it." placeholder:"URL" env:"POSTRIDER_ADMIN_DATABASE_URL"`
	encryptionFlags
	queryFlags
	logFlags
}

func (migrateUpCmd) Help() string {
	return `Example:
  postrider migrate up --database-url postgres://owner:secret@db:5432/postrider

The role owns the schema, and needs CREATE on the database. It is the role that serve connects with.

The roles postrider_reader, postrider_publisher, postrider_consumer and postrider_operator, and with the encryption key
the login roles that run the queries of users (unless --query-database-url is set), are created with
--admin-database-url. Without it the first role creates them if it has CREATEROLE; otherwise the statements for an
administrator are printed.`
}

func (c *migrateUpCmd) Run(ctx context.Context, std terminal.Streams) error {
	if err := c.require(); err != nil {
		return err
	}
	sealer := (*postgres.Sealer)(nil)
	if c.EncryptionKey != "" {
		var err error
		if sealer, err = c.sealer(); err != nil {
			return err
		}
	}
	return migrateUp(ctx, std, c.databaseFlags, c.AdminDatabaseURL, c.logFlags,
		func(pool, admin *pgxpool.Pool) string {
			if len(c.QueryDatabaseURL) > 0 {
				return ""
			}
			return setUpQueries(ctx, postgres.NewDB(pool), postgres.NewDB(admin), sealer)
		})
}

// setUpQueries creates or repairs the login roles for queries. It returns one line about what is missing; postrider
// works without them.
func setUpQueries(ctx context.Context, db, admin *postgres.DB, sealer *postgres.Sealer) string {
	var err error
	if sealer == nil {
		var exist bool
		const query = "SELECT EXISTS (SELECT FROM postrider_internal.query_logins)"
		if err = db.QueryRow(ctx, query).Scan(&exist); err == nil && !exist {
			err = errors.New("POSTRIDER_ENCRYPTION_KEY is not set")
		}
	} else {
		err = sqlquery.EnsureLogins(ctx, db, admin, sealer)
	}
	if err == nil {
		return ""
	}
	remedy := sqlquery.CreateRemedy
	if problem, ok := errors.AsType[*sqlquery.LoginError](err); ok && problem.Remedy != "" {
		remedy = problem.Remedy
	}
	return fmt.Sprintf("Queries of users are not set up (%s): %s.\n", terminal.OneLine(err.Error()),
		strings.TrimSuffix(remedy, ";"))
}

// migrateUp migrates the database, and creates the roles with adminURL; "" = the database's own. queries returns a line
// about the login roles for queries, or "".
func migrateUp(
	ctx context.Context, std terminal.Streams, database databaseFlags, adminURL string, flags logFlags,
	queries func(pool, admin *pgxpool.Pool) string,
) error {
	pool, err := openDatabase(ctx, database, 4, flags.logger(std.Err))
	if err != nil {
		return err
	}
	defer pool.Close()
	admin := pool
	if adminURL != "" {
		if admin, err = postgres.OpenPool(ctx, adminURL, 1); err == nil {
			defer admin.Close()
			err = admin.Ping(ctx)
		}
		if err != nil {
			return fmt.Errorf("POSTRIDER_ADMIN_DATABASE_URL: %w", err)
		}
	}
	if err := postgres.CheckWritable(ctx, pool); err != nil {
		return err
	}
	before, _ := migrations.ReadStatus(ctx, pool) // only printed; may fail while another process migrates
	// Notices are printed at once: they may report what the migration waits for.
	err = terminal.Await(std.Err, "the schema is migrated", func() error {
		return migrations.UpWithAdmin(ctx, pool, admin, std.Out)
	})
	if err != nil {
		return err
	}
	after, err := migrations.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	line, newer := queries(pool, admin), ""
	if after.Current > after.Target || after.River > migrations.RiverVersion {
		newer = fmt.Sprintf(" A newer release created it (this build has %d and %d); nothing was changed.", after.Target,
			migrations.RiverVersion)
	}
	_, err = fmt.Fprintf(std.Out, "Schema at version %d (was %d), River's at %d.%s\n%s", after.Current, before.Current,
		after.River, newer, line)
	return err
}

type migrateStatusCmd struct {
	databaseFlags
	logFlags
	terminal.OutputFlag
}

func (c *migrateStatusCmd) Run(ctx context.Context, std terminal.Streams) error {
	if err := c.require(); err != nil {
		return err
	}
	pool, err := openDatabase(ctx, c.databaseFlags, 4, c.logger(std.Err))
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
	err = c.PrintOne(std.Out, shown, fmt.Sprintf("Schema: version %d, this build needs %d. River: version %d, needs %d.",
		status.Current, status.Target, status.River, migrations.RiverVersion))
	if err == nil && !status.Ready() {
		err = errors.New("the schema is too old: run `postrider migrate up`")
	}
	return err
}
