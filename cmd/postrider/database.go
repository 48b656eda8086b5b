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

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/terminal"
	"postrider/migrations"
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

// openDatabase waits up to 30 s for a database that is starting, for example after a reboot.
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

// awaitDatabase logs each reason once.
func awaitDatabase(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	const timeout, pause = 30 * time.Second, 500 * time.Millisecond
	logged := ""
	for tries, deadline := 1, time.Now().Add(timeout); ; tries++ {
		err := pool.Ping(ctx)
		if err == nil {
			if tries > 1 {
				log.Info("database available", "tries", tries)
			}
			return nil
		}
		switch {
		case postgres.IsRejected(err):
			return connectError(err, postgres.ThroughPgBouncer(pool))
		case time.Now().After(deadline) || ctx.Err() != nil:
			return fmt.Errorf("%w (tried %s)", postgres.ConnectError(err), terminal.Plural(tries, "time"))
		case err.Error() != logged:
			logged = err.Error()
			log.Warn("database not available yet; retrying", "for", timeout, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// connectError is the error of a connection, with advice. pgbouncer is the flag --pgbouncer.
func connectError(err error, pgbouncer bool) error {
	if rejected := poolerRejection(err, pgbouncer); rejected != nil {
		return rejected
	}
	return postgres.ConnectError(err)
}

// poolerRejection returns advice if PgBouncer rejected postrider's session settings ("unsupported startup parameter",
// protocol violation 08P01), and nil for every other error. pgbouncer is the flag --pgbouncer.
func poolerRejection(err error, pgbouncer bool) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "08P01" || !strings.Contains(pgErr.Message, "startup parameter") {
		return nil
	}
	if pgbouncer {
		return terminal.Usagef("POSTRIDER_DATABASE_URL: PgBouncer reports: %s; remove that parameter from the URL",
			pgErr.Message)
	}
	return terminal.Usagef("POSTRIDER_DATABASE_URL leads to PgBouncer (%s): set --pgbouncer or POSTRIDER_PGBOUNCER=true,"+
		" or connect to PostgreSQL itself", pgErr.Message)
}

// checkPooler detects a pooler that ignores session settings instead of rejecting them.
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

// adviseOnSettings logs the settings that the role lacks and that sessions cannot set through PgBouncer.
func adviseOnSettings(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	if !postgres.ThroughPgBouncer(pool) {
		return nil
	}
	statements, err := postgres.MissingSettings(ctx, pool)
	if err == nil && statements != "" {
		log.Warn("PgBouncer drops session settings; set them for the role, or statements wait 15 s for a lock instead "+
			"of 2 s, and may run functions that another login created in schema public", "sql", statements)
	}
	return err
}

func requireSchema(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.CheckServer(ctx, pool); err != nil {
		return err
	}
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

// requireWritable is requireSchema of a database that accepts writes.
func requireWritable(ctx context.Context, pool *pgxpool.Pool) error {
	if err := requireSchema(ctx, pool); err != nil {
		return err
	}
	return postgres.CheckWritable(ctx, pool)
}

// access returns users and API keys without a running service. It does not wait for a database that is starting.
func (f databaseFlags) access(ctx context.Context) (*access.Access, error) {
	pool, err := f.openPool(ctx, 2)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, pool.Close) // or by the end of the program
	if err := pool.Ping(ctx); err != nil {
		return nil, connectError(err, f.PgBouncer)
	}
	if err := f.checkPooler(ctx, pool); err != nil {
		return nil, err
	}
	if err := requireWritable(ctx, pool); err != nil {
		return nil, err
	}
	return access.AccessOf(pool), nil
}
