package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/access"
	"postrider/cmd/postrider/terminal"
	"postrider/migrations"
	"postrider/postgres"
)

// openPool connects to nothing yet.
func (f databaseFlags) openPool(ctx context.Context, maxConns int) (*pgxpool.Pool, error) {
	open := postgres.OpenPool
	if f.PgBouncer {
		open = postgres.OpenPoolThroughPgBouncer
	}
	pool, err := open(ctx, f.DatabaseURL, maxConns)
	if err != nil {
		return nil, terminal.Usagef("POSTRIDER_DATABASE_URL: %v", err)
	}
	return pool, nil
}

// openDatabase waits for a database that is just starting, as after a reboot or in compose.
func openDatabase(ctx context.Context, f databaseFlags, maxConns int, log *slog.Logger) (*pgxpool.Pool, error) {
	pool, err := f.openPool(ctx, maxConns)
	if err != nil {
		return nil, err
	}
	if err = awaitDatabase(ctx, pool, log); err == nil {
		err = f.checkPooler(ctx, pool)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func awaitDatabase(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	const patience, pause = 30 * time.Second, 500 * time.Millisecond
	for deadline := time.Now().Add(patience); ; {
		err := pool.Ping(ctx)
		if err == nil {
			return nil
		}
		if refused := poolerRejection(err, postgres.ThroughPgBouncer(pool)); refused != nil {
			return refused
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("connect to the database: %w", err)
		}
		log.Warn("the database does not answer yet", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// poolerRejection returns advice about a pooler that rejects our session settings; nil for every other error. PgBouncer
// reports "unsupported startup parameter: plan_cache_mode" (protocol violation, 08P01).
func poolerRejection(err error, switchedOn bool) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "08P01" || !strings.Contains(pgErr.Message, "startup parameter") {
		return nil
	}
	if switchedOn {
		return terminal.Usagef("POSTRIDER_DATABASE_URL: PgBouncer says: %s; take that parameter out of the URL",
			pgErr.Message)
	}
	return terminal.Usagef("POSTRIDER_DATABASE_URL leads to PgBouncer (%s): set --pgbouncer or POSTRIDER_PGBOUNCER=true,"+
		" or connect to PostgreSQL itself", pgErr.Message)
}

// checkPooler finds a pooler that ignores settings instead of rejecting them.
func (f databaseFlags) checkPooler(ctx context.Context, pool *pgxpool.Pool) error {
	if f.PgBouncer {
		return nil
	}
	dropped, err := postgres.SettingsDropped(ctx, pool)
	if err != nil {
		return err
	}
	if dropped {
		return terminal.Usagef("POSTRIDER_DATABASE_URL leads to a connection pooler that drops the session's settings: set " +
			"--pgbouncer or POSTRIDER_PGBOUNCER=true, or connect to PostgreSQL itself")
	}
	return nil
}

// adviseOnSettings logs which settings the role should have if sessions cannot set them.
func adviseOnSettings(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	if !postgres.ThroughPgBouncer(pool) {
		return nil
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	if err == nil && statements != "" {
		log.Warn("PgBouncer passes no session settings on; give them to the role, or a forgotten lock holds statements up "+
			"for 15 s instead of 2", "sql", statements)
	}
	return err
}

func requireSchema(ctx context.Context, pool *pgxpool.Pool) error {
	status, err := migrations.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	if !status.Ready() {
		return fmt.Errorf("the database's schema is at version %d (River's at %d) and this build needs %d (%d): run "+
			"`postrider migrate up` first", status.Current, status.River, status.Target, migrations.RiverVersion)
	}
	return nil
}

// withPool does something with a database that has the schema. It does not wait for one that is starting, as serve
// does.
func (f databaseFlags) withPool(ctx context.Context, do func(*pgxpool.Pool) error) error {
	if err := f.require(); err != nil {
		return err
	}
	pool, err := f.openPool(ctx, 2)
	if err != nil {
		return err
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

// access changes who may use the service, in a database that may have no running one. The audit knows the actor as cli:
// only the database's URL is known of the user.
func (f databaseFlags) access(ctx context.Context, do func(context.Context, *access.Access) error) error {
	ctx = access.WithActor(ctx, access.Actor{Name: "cli"})
	err := f.withPool(ctx, func(pool *pgxpool.Pool) error { return do(ctx, access.AccessOf(pool)) })
	var rejected *postgres.FunctionError
	if errors.As(err, &rejected) && errors.Is(err, postgres.ErrInvalid) {
		return terminal.Usagef("%s", rejected.Message)
	}
	return err
}
