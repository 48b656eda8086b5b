package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed *.sql sql/*.sql
var files embed.FS

// Parts has the folder sql: what migrations include. Other statements may include it, too.
var Parts fs.FS = files

const (
	// Schema is the PostgreSQL schema that holds the tables, River's included.
	Schema = "postrider_internal"
	// RiverVersion is the version of River's own schema that this build is written against. It is pinned because the
	// engine inserts and deletes rows of river_job itself.
	RiverVersion = 8
	// MinServerVersion is the oldest PostgreSQL supported, as server_version_num.
	MinServerVersion = 150000

	versionTable = Schema + ".goose_db_version"
	// lockKey is the advisory lock that lets one process migrate at a time ("post" in hexadecimal).
	lockKey = 0x706f7374
)

// Status is how far a database is migrated.
type Status struct {
	// Current is the version of postrider's schema in the database, 0 when there is none.
	Current int64
	// Target is the version this build needs.
	Target int64
	// River is the version of River's schema in the database, 0 when there is none.
	River int
}

// Ready reports whether this build can run on the database. A newer schema is fine: migrations run before the code of
// a release, and each keeps the release before it working.
func (s Status) Ready() bool { return s.Current >= s.Target && s.River >= RiverVersion }

// Up brings the database to the newest schema: schema, River's tables, ours, roles. It rejects a database to which
// another text of an embedded migration was applied. It is safe to call from many processes at once; one works and the
// others wait. It needs two connections, and works through PgBouncer in transaction mode as well. If the roles cannot
// be set up, it writes the missing statements to notices and goes on. When another session delays it, it names that
// session there.
func Up(ctx context.Context, pool *pgxpool.Pool, notices io.Writer) error {
	return UpWithAdmin(ctx, pool, pool, notices)
}

// UpWithAdmin is Up that creates the roles as another role. So the role of pool, which owns the schema and serves,
// needs no CREATEROLE.
func UpWithAdmin(ctx context.Context, pool, admin *pgxpool.Pool, notices io.Writer) error {
	if err := CheckServer(ctx, pool); err != nil {
		return err
	}
	return alone(ctx, pool, notices, func() error {
		if err := upSchema(ctx, pool); err != nil {
			return err
		}
		return ensureRoles(ctx, pool, admin, notices)
	})
}

// upSchema applies River's migrations, then ours.
func upSchema(ctx context.Context, pool *pgxpool.Pool) error {
	if err := createSchema(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, createChecksums); err != nil {
		return fmt.Errorf("create table %s: %w", checksumTable, err)
	}
	if err := checkApplied(ctx, pool); err != nil {
		return err
	}
	if err := upRiver(ctx, pool); err != nil {
		return err
	}
	return withProvider(pool, func(p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate the schema: %w", err)
		}
		return nil
	})
}

// createSchema needs CREATE on the database only if the schema does not exist. IF NOT EXISTS always needs it.
func createSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var exists bool
	var grant string
	const query = `SELECT to_regnamespace($1) IS NOT NULL,
		format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)`
	err := pool.QueryRow(ctx, query, Schema).Scan(&exists, &grant)
	if err != nil || exists {
		return err
	}
	_, err = pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+Schema)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42501" {
		return fmt.Errorf("create schema %s: %w; the database's owner may run: %s", Schema, err, grant)
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", Schema, err)
	}
	return nil
}

const (
	// lockPause is how often a process checks whether the one that migrates is done.
	lockPause = 100 * time.Millisecond
	// A migration usually takes less than noticeAfter. Any login can hold the lock, so the notice names the holder.
	noticeAfter, noticeAgain = 3 * time.Second, time.Minute
)

// alone runs do while no other process migrates this database. The others poll: behind a pooler, a transaction that
// waits keeps one of its few server connections from the process that works.
func alone(ctx context.Context, pool *pgxpool.Pool, notices io.Writer, do func() error) error {
	notice := time.Now().Add(noticeAfter)
	for {
		locked, err := tryAlone(ctx, pool, do)
		if locked || err != nil {
			return err
		}
		if time.Now().After(notice) {
			notice = time.Now().Add(noticeAgain)
			_, _ = fmt.Fprintln(notices, "The migration waits. "+lockHolder(ctx, pool))
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return fmt.Errorf("wait for the migration lock: %s: %w", lockHolder(context.WithoutCancel(ctx), pool), ctx.Err())
		}
	}
}

// lockHolder names the sessions that have the lock.
func lockHolder(ctx context.Context, pool *pgxpool.Pool) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	const query = `
SELECT coalesce(string_agg(format('process %s (%s, role %s)', a.pid, coalesce(nullif(a.application_name, ''),
    'unnamed'), a.usename), ', '), 'no session now')
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = $1::bigint::oid AND l.objsubid = 1
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	var holder string
	if err := pool.QueryRow(ctx, query, lockKey).Scan(&holder); err != nil {
		holder = "a session that could not be read"
	}
	return fmt.Sprintf("Advisory lock %d, which one migration has at a time, is held by %s. If that is no migration, "+
		"end it with SELECT pg_terminate_backend(…).", lockKey, holder)
}

// tryAlone holds the lock in a transaction of its own. A session's lock would be lost behind PgBouncer in transaction
// mode, where the next statement may run in another session.
func tryAlone(ctx context.Context, pool *pgxpool.Pool, do func() error) (locked bool, err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// The work is done in other transactions, for minutes perhaps, and this one is idle meanwhile.
	const lock = "SELECT pg_try_advisory_xact_lock($1) FROM set_config('idle_in_transaction_session_timeout', '0', true)"
	if err := tx.QueryRow(ctx, lock, lockKey).Scan(&locked); err != nil {
		return false, fmt.Errorf("lock out other migrations: %w", err)
	}
	if !locked {
		return false, nil
	}
	return true, do()
}

// CheckServer rejects a server that is too old, and a database that cannot hold all texts.
func CheckServer(ctx context.Context, pool *pgxpool.Pool) error {
	var version int
	var encoding, name string
	const query = `SELECT current_setting('server_version_num')::int, getdatabaseencoding()::text,
		current_database()::text`
	if err := pool.QueryRow(ctx, query).Scan(&version, &encoding, &name); err != nil {
		return fmt.Errorf("read the server's version: %w", err)
	}
	if version < MinServerVersion {
		return fmt.Errorf("PostgreSQL %d is too old: postrider needs %d or newer", version/10000, MinServerVersion/10000)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the encoding of database %s is %s; the database's encoding must be UTF8: create another one "+
			"with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", name, encoding)
	}
	return nil
}

func upRiver(ctx context.Context, pool *pgxpool.Pool) error {
	// The newer River schema of a newer release is left as it is. River's own migrator fails at versions
	// that it does not know.
	existing, err := riverVersion(ctx, pool)
	if err != nil || existing >= RiverVersion {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema, Logger: quiet()})
	if err != nil {
		return fmt.Errorf("prepare River's migrations: %w", err)
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{TargetVersion: RiverVersion})
	if err != nil {
		return fmt.Errorf("migrate River's schema to version %d: %w", RiverVersion, err)
	}
	return nil
}

func withProvider(pool *pgxpool.Pool, do func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	p, err := newProvider(db)
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	return do(p)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	versions, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	extended, ok := versions.(database.StoreExtender)
	if !ok {
		return nil, errors.New("goose cannot check for its own table")
	}
	known, err := embedded()
	if err != nil {
		return nil, err
	}
	store := &versionStore{extended, known}
	return goose.NewProvider("", db, folder{files}, goose.WithStore(store), goose.WithSlog(quiet()))
}

// ReadStatus returns how far the database is migrated. It changes nothing.
func ReadStatus(ctx context.Context, pool *pgxpool.Pool) (Status, error) {
	var s Status
	known, err := embedded()
	if err != nil {
		return s, err
	}
	for version := range known {
		s.Target = max(s.Target, version)
	}
	if s.Current, err = newestVersion(ctx, pool, versionTable, "version_id", "is_applied"); err != nil {
		return s, err
	}
	s.River, err = riverVersion(ctx, pool)
	return s, err
}

// riverVersion is that of River's schema, 0 when there is none.
func riverVersion(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	version, err := newestVersion(ctx, pool, Schema+".river_migration", "version", "line = 'main'")
	return int(version), err
}

// newestVersion returns 0 if the table does not exist yet.
func newestVersion(ctx context.Context, pool *pgxpool.Pool, table, column, condition string) (int64, error) {
	if there, err := exists(ctx, pool, table); err != nil || !there {
		return 0, err
	}
	var version int64
	query := fmt.Sprintf("SELECT coalesce(max(%s), 0) FROM %s WHERE %s", column, table, condition)
	err := pool.QueryRow(ctx, query).Scan(&version)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42703" || pgErr.Code == "42P01") {
		return 0, nil // another process is in the middle of making it
	}
	if err != nil {
		return 0, fmt.Errorf("read table %s: %w", table, err)
	}
	return version, nil
}

func exists(ctx context.Context, pool *pgxpool.Pool, table string) (there bool, err error) {
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there); err != nil {
		return false, fmt.Errorf("check for table %s: %w", table, err)
	}
	return there, nil
}

// quiet keeps River's and goose's progress lines out of the log: `migrate` prints its own summary.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Down takes postrider's schema back to a version, with the data that older versions have no place for; River's tables
// stay. For tests.
func Down(ctx context.Context, pool *pgxpool.Pool, version int64) error {
	return withProvider(pool, func(p *goose.Provider) error {
		if _, err := p.DownTo(ctx, version); err != nil {
			return fmt.Errorf("take the schema down to version %d: %w", version, err)
		}
		return nil
	})
}
