package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// IdempotencyWindow is how long the key of a publish is remembered.
	IdempotencyWindow = 24 * time.Hour
	// MaxIdempotencyKey is how many bytes a key may have.
	MaxIdempotencyKey = 255

	keyedGroup = 256
	// keyPatience is how long a group waits for a transaction that holds one of its keys: another node's is over by then, a user's may
	// stay open for hours.
	keyPatience = "100ms"
)

// takeKeyStatement takes a key, unless it is taken: the row is there then, and no publish of the last 24 hours is made twice.
const takeKeyStatement = `
INSERT INTO postrider_internal.idempotency_keys AS k (topic_id, key_hash, event_uuids, event_day, expires_at)
VALUES ($1, $2, $3, (now() AT TIME ZONE 'UTC')::date, now() + $4)
ON CONFLICT (topic_id, key_hash) DO UPDATE SET event_uuids = excluded.event_uuids, event_day = excluded.event_day, created_at = now(), expires_at = excluded.expires_at
 WHERE k.expires_at <= now()`

func keyHash(key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return hash[:]
}

// fitsKeyed measures a group of requests with keys: the same key is asked for once in a transaction.
func fitsKeyed() func(*publishRequest) bool {
	fits, seen := fitsGroup(), map[string]bool{}
	return func(req *publishRequest) bool {
		if len(seen) == keyedGroup || seen[req.key()] || !fits(req) {
			return false
		}
		seen[req.key()] = true
		return true
	}
}

// key is unique among topics, too.
func (req *publishRequest) key() string { return req.Topic + "\x00" + req.IdempotencyKey }

// commitKeyed stores those of a group whose keys are new. The others were published before, and are answered as they were then.
//
// The catalogue is read in the transaction's own snapshot: a key must never be kept without its events, and so the group must not turn
// out to be stale. A key that somebody took after the snapshot is a serialisation failure, and the group is tried again.
func (c *committer) commitKeyed(ctx context.Context, group []*publishRequest) error {
	if len(group) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	err := c.store.withConn(bounded, func(conn *pgxpool.Conn) error { return c.claimAndStore(bounded, conn, group) })
	switch {
	case sqlState(err) != lockNotAvailable:
		return err
	case len(group) == 1:
		group[0].answer(fmt.Errorf("%w: another publish with this idempotency key is under way", ErrUnavailable))
		return nil
	}
	middle := len(group) / 2
	if err := c.commitKeyed(ctx, group[:middle]); err != nil {
		return err
	}
	return c.commitKeyed(ctx, group[middle:])
}

// lockNotAvailable is PostgreSQL's code of a lock timeout.
const lockNotAvailable = "55P03"

func (c *committer) claimAndStore(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest) error {
	began := time.Now()
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	catalogue, err := c.store.readCatalogue(ctx, conn, c.store.Catalogue())
	if err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	group = refilter(unanswered(group), catalogue)
	repeated, err := claim(ctx, conn, group)
	if err != nil {
		return fmt.Errorf("look for idempotency keys: %w", err)
	}
	fresh := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		if req.receipt.Repeated = repeated[req]; !req.receipt.Repeated {
			fresh = append(fresh, req)
		}
	}
	if len(fresh) > 0 {
		if err := c.transact(ctx, conn, fresh, began); err != nil {
			return err
		}
	}
	for req := range repeated {
		req.answer(nil)
	}
	return nil
}

// claim takes the keys of a group in one round trip, in an order of their own: two nodes never wait for one another in a circle.
func claim(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest) (repeated map[*publishRequest]bool, err error) {
	repeated = map[*publishRequest]bool{}
	ordered := slices.Clone(group)
	slices.SortFunc(ordered, func(a, b *publishRequest) int {
		return bytes.Compare(keyHash(a.key()), keyHash(b.key()))
	})
	batch := &pgx.Batch{}
	batch.Queue("SELECT set_config('lock_timeout', $1, true)", keyPatience)
	for _, req := range ordered {
		ids := make([][16]byte, len(req.receipt.SystemIDs))
		for i, id := range req.receipt.SystemIDs {
			ids[i] = id
		}
		batch.Queue(takeKeyStatement, req.receipt.Topic.ID, keyHash(req.IdempotencyKey), ids, IdempotencyWindow).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				repeated[req] = true
			}
			return nil
		})
	}
	return repeated, conn.SendBatch(ctx, batch).Close()
}

// CleanIdempotencyKeys removes those whose window is over.
func (s *Store) CleanIdempotencyKeys(ctx context.Context) error {
	const clean = `DELETE FROM postrider_internal.idempotency_keys k USING (
		SELECT topic_id, key_hash FROM postrider_internal.idempotency_keys WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) e
		WHERE k.topic_id = e.topic_id AND k.key_hash = e.key_hash`
	for removed := int64(cleanStep); removed == cleanStep; {
		tag, err := s.pool.Exec(ctx, clean, cleanStep)
		if err != nil {
			return fmt.Errorf("remove idempotency keys: %w", err)
		}
		removed = tag.RowsAffected()
	}
	return nil
}
