package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// IdempotencyWindow is how long the key of a publish is remembered.
	IdempotencyWindow = 24 * time.Hour
	// MaxIdempotencyKey is how many bytes a key may have.
	MaxIdempotencyKey = 255

	// keyedGroup bounds the locks of a transaction: PostgreSQL has room for 6,400 in all, unless told otherwise.
	keyedGroup = 256
	// keyPatience is how long a publish waits while another one is at its key: other nodes are done by then, a user's transaction may stay
	// open for hours. Meanwhile it asks again each keyPause, and keeps nobody else waiting.
	keyPatience = time.Second
	keyPause    = 20 * time.Millisecond
)

// takeKeyStatement takes a key, unless it is taken: the row is there then, and no publish of the last 24 hours is made twice. mine is
// false where another transaction is at the same key: it may be a user's, and stay open for hours. Nobody waits for it.
const takeKeyStatement = `
WITH lock AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($5) AS mine
), taken AS (
    INSERT INTO postrider_internal.idempotency_keys AS k (topic_id, key_hash, event_uuids, event_day, expires_at)
    SELECT $1, $2, $3, (now() AT TIME ZONE 'UTC')::date, now() + $4 FROM lock WHERE mine
    ON CONFLICT (topic_id, key_hash) DO UPDATE SET event_uuids = excluded.event_uuids, event_day = excluded.event_day, created_at = now(), expires_at = excluded.expires_at
     WHERE k.expires_at <= now()
    RETURNING 1
)
SELECT mine, EXISTS (SELECT FROM taken) FROM lock`

// keyLock is the advisory lock of a key; postrider.publish takes the same one.
func keyLock(topic int64, hash []byte) int64 {
	return int64(binary.BigEndian.Uint64(hash)) ^ topic
}

func keyHash(key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return hash[:]
}

// fitsKeyed measures a group of requests with keys: the same key is asked for once in a transaction, and what is routed is alone in it.
func fitsKeyed() func(*publishRequest) bool {
	fits, seen, alone := fitsGroup(), map[string]bool{}, false
	return func(req *publishRequest) bool {
		if len(seen) == keyedGroup || seen[req.key()] || alone || req.routed && len(seen) > 0 || !fits(req) {
			return false
		}
		seen[req.key()], alone = true, req.routed
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return c.store.withConn(ctx, func(conn *pgxpool.Conn) error { return c.claimAndStore(ctx, conn, group) })
}

func (c *committer) claimAndStore(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest) error {
	began := time.Now()
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	catalogue, err := c.store.readCatalogue(ctx, conn, c.store.Catalogue())
	if err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	claims, err := claim(ctx, conn, refilter(group, catalogue))
	if err != nil {
		return fmt.Errorf("look for idempotency keys: %w", err)
	}
	if len(claims.fresh) > 0 {
		if err := c.transact(ctx, conn, claims.fresh, began); err != nil {
			return err
		}
	}
	for _, req := range claims.repeated {
		req.receipt.Repeated = true
		req.answer(nil)
	}
	for _, req := range claims.busy {
		c.postpone(req)
	}
	return nil
}

// postpone lets a request wait for whoever is at its key.
func (c *committer) postpone(req *publishRequest) {
	if time.Since(req.queued) > keyPatience {
		req.answer(fmt.Errorf("%w: another publish with this idempotency key is under way", ErrUnavailable))
		return
	}
	req.postponed = true
	req.claimed.Store(false) // its client may go away again
	time.AfterFunc(keyPause, func() { c.keyed.add(req) })
}

// claims are the requests of a group by what is known of their keys.
type claims struct{ fresh, repeated, busy []*publishRequest }

// claim takes the keys of a group in one round trip.
func claim(ctx context.Context, conn *pgxpool.Conn, group []*publishRequest) (c claims, err error) {
	batch := &pgx.Batch{}
	for _, req := range group {
		ids := make([][16]byte, len(req.receipt.SystemIDs))
		for i, id := range req.receipt.SystemIDs {
			ids[i] = id
		}
		topic, hash := req.receipt.Topic.ID, keyHash(req.IdempotencyKey)
		batch.Queue(takeKeyStatement, topic, hash, ids, IdempotencyWindow, keyLock(topic, hash)).QueryRow(func(row pgx.Row) error {
			var mine, taken bool
			err := row.Scan(&mine, &taken)
			switch {
			case taken:
				c.fresh = append(c.fresh, req)
			case mine:
				c.repeated = append(c.repeated, req)
			default:
				c.busy = append(c.busy, req)
			}
			return err
		})
	}
	return c, conn.SendBatch(ctx, batch).Close()
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
