package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CommittingPart is a part of a node that must be able to commit.
type CommittingPart int

// The parts.
const (
	PublishCommits CommittingPart = iota
	ResultCommits
	HeartbeatCommits
	committingParts
)

var cannotCommit = [committingParts]string{
	"events cannot be stored", "results of attempts cannot be recorded", "the heartbeat cannot be written",
}

// Commits knows which parts of this node cannot commit, and PostgreSQL's reason.
type Commits struct {
	db      *DB
	log     *slog.Logger
	failing [committingParts]atomic.Pointer[string] // the reasons
	found   chan struct{}
}

// NewCommits returns Commits without failures. Watch must run.
func NewCommits(db *DB, log *slog.Logger) *Commits {
	return &Commits{db: db, log: log, found: make(chan struct{}, 1)}
}

// IsDiskFull reports a write that failed because PostgreSQL's disk is full (SQLSTATE 53100).
func IsDiskFull(err error) bool { return SQLState(err) == "53100" }

// Noted notes the result of a part's last commit.
func (c *Commits) Noted(part CommittingPart, err error) {
	if err == nil {
		if c.failing[part].Load() != nil && c.failing[part].Swap(nil) != nil {
			c.log.Info("commits succeed again", "before", cannotCommit[part])
		}
		return
	}
	if c.failing[part].Swap(new(CommitReason(err))) == nil {
		c.log.Error(cannotCommit[part], "error", err, "sqlstate", SQLState(err))
	}
	select {
	case c.found <- struct{}{}:
	default:
	}
}

// Failing returns what cannot be committed and why, for any client; "" if all commits succeed.
func (c *Commits) Failing() string {
	for part := range committingParts {
		if reason := c.failing[part].Load(); reason != nil {
			return cannotCommit[part] + ": " + *reason
		}
	}
	return ""
}

// Fails reports whether the last commit of a part failed.
func (c *Commits) Fails(part CommittingPart) bool { return c.failing[part].Load() != nil }

// CommitReason is why PostgreSQL rejects a commit, without values, which the messages of classes 22, 23 and P0 quote,
// and without addresses, which the errors of connections have.
func CommitReason(err error) string {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr) && errors.Is(err, context.DeadlineExceeded):
		return "PostgreSQL did not respond in time"
	case pgErr == nil:
		return "the connection to PostgreSQL failed"
	case pgErr.Code == "23514" && pgErr.ConstraintName == "":
		return "a table has no partition for this day (SQLSTATE 23514); nodes create partitions every minute"
	case class(err) == "22" || class(err) == "23" || class(err) == "P0":
		return "SQLSTATE " + pgErr.Code
	case IsDiskFull(err):
		return pgErr.Message + "; free space on PostgreSQL's disk, or enlarge it"
	default:
		return fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	}
}

// testWritePause is the time between two test writes.
const testWritePause = time.Second

// Watch tests whether events can be stored again after a publish failed, until ctx ends. A load balancer sends no
// publish to a node that is not ready, so that none would show it. A heartbeat does not: it needs no new space on the
// disk, and other rights. The recorder and the heartbeat repeat by themselves.
func (c *Commits) Watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.found:
		}
		for c.Fails(PublishCommits) && WaitJittered(ctx, testWritePause) {
			c.Noted(PublishCommits, TestWrite(ctx, c.db.Pool))
		}
	}
}

// TestWrite commits a transaction that stores an event of 1 MB and deletes it, so that no other transaction sees it.
func TestWrite(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, ReadTime)
	defer cancel()
	const (
		store = `INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_id, event_type, subject,
			    source, data_version, schema, body)
			SELECT gen_random_uuid(), (now() AT TIME ZONE 'UTC')::date, 0, now(), 'test write', '', '', '', '', '',
			       convert_to(repeat('x', 1048576), 'UTF8') RETURNING id, day`
		remove = "DELETE FROM postrider_internal.events WHERE id = $1 AND day = $2"
	)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var id [16]byte
		var day time.Time
		if err := tx.QueryRow(ctx, store).Scan(&id, &day); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, remove, id, day)
		return err
	})
}
