package publish

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/jobs/queue"
	"postrider/postgres"
)

const (
	// MaxIdempotencyKey is how many bytes a key may have.
	MaxIdempotencyKey = 255

	// keyedGroup bounds how many keys are taken one by one when another transaction has one of them.
	keyedGroup = 256
	// keyPatience is how long a publish waits while another one is at its key: other nodes are done by then, a user's
	// transaction may stay open for hours. Meanwhile it asks again each keyPause, and keeps nobody else waiting.
	keyPatience = time.Second
	keyPause    = 20 * time.Millisecond
)

// takeKeys takes keys that are free, and answers for each whether it was; NULL where another transaction is in the way.
const takeKeys = "SELECT postrider_internal.try_take_keys($1, $2, $3, $4)"

// requireCatalogue is asked last, for a key must never be kept without its events: it is a serialisation failure where
// the catalogue has moved on from the version that the filters were taken from.
const requireCatalogue = "SELECT postrider_internal.require_catalogue($1)"

func keyHash(key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return hash[:]
}

// mayRepeat reports whether what was published before is not stored again.
func (req *publishRequest) mayRepeat() bool { return req.IdempotencyKey != "" || req.detects() }

// hasBoth reports whether both a key and events are to be looked for.
func (req *publishRequest) hasBoth() bool { return req.IdempotencyKey != "" && req.detects() }

// fitsKeyed measures a group of requests with keys: the same key is asked for once in a transaction, and what is routed
// is alone in it.
func fitsKeyed() func(*publishRequest) bool {
	fits, seen, n, alone := fitsGroup(), map[string]bool{}, 0, false
	return func(req *publishRequest) bool {
		if len(seen) == keyedGroup || seen[req.key()] || alone || req.routed && n > 0 || !fits(req) {
			return false
		}
		if req.IdempotencyKey != "" {
			seen[req.key()] = true
		}
		n, alone = n+1, req.routed
		return true
	}
}

// key is unique among topics, too.
func (req *publishRequest) key() string { return req.Topic + "\x00" + req.IdempotencyKey }

// commitKeyed stores what is new of a group. The rest was published before, and is answered as it was then. What has a
// key and events to look for has a transaction of its own: where one of the two cannot be had, the other must not be
// kept.
func (p *Publisher) commitKeyed(ctx context.Context, group []*publishRequest, filtered bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var together []*publishRequest
	for _, req := range unanswered(group) {
		if !req.hasBoth() {
			together = append(together, req)
		} else if err := p.claimAndStore(ctx, []*publishRequest{req}, filtered); err != nil {
			return err
		}
	}
	if len(together) == 0 {
		return nil
	}
	return p.claimAndStore(ctx, together, filtered)
}

// claimAndStore takes keys by the catalogue in memory, and lets requireCatalogue say whether it was the newest;
// filtered reads the catalogue in the transaction's own snapshot instead. There, what somebody took after the snapshot
// is a serialisation failure, too. Whatever fails so is tried again.
func (p *Publisher) claimAndStore(ctx context.Context, group []*publishRequest, filtered bool) error {
	err := p.db.WithConn(ctx, func(conn *pgxpool.Conn) (err error) {
		began, batch := time.Now(), &pgx.Batch{}
		if !filtered {
			batch.Queue("BEGIN")
		} else if group, err = p.beginFiltered(ctx, conn, group); err != nil || len(group) == 0 {
			return err
		} else if len(group) > 1 && slices.ContainsFunc(group, (*publishRequest).hasBoth) { // since this moment
			return errStale
		}
		claims, err := claim(ctx, conn, batch, group)
		if err != nil {
			return fmt.Errorf("look for what was published before: %w", err)
		}
		if err := p.storeClaimed(ctx, conn, claims, began); err != nil {
			return err
		}
		claims.answer()
		return nil
	})
	if postgres.IsTransient(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// storeClaimed ends the transaction.
func (p *Publisher) storeClaimed(ctx context.Context, conn *pgxpool.Conn, claims *claims, began time.Time) error {
	if fresh := claims.stored(); len(fresh) > 0 {
		return p.transact(ctx, conn, fresh, began)
	}
	batch := &pgx.Batch{}
	batch.Queue(requireCatalogue, claims.version)
	batch.Queue(claims.end())
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("end a publish of what was published before: %w", err)
	}
	return nil
}

// putOff lets requests wait for whoever is at the same. Nobody looks at them afterwards: they may be in another group.
func (p *Publisher) putOff(group []*publishRequest) {
	for _, req := range group {
		if req.postponed {
			req.claimed.Store(false) // its client may go away again
			time.AfterFunc(keyPause, func() { p.waiting.Add(req) })
		}
	}
}

// postpone has a request put off, unless it has waited for long enough.
func (req *publishRequest) postpone() {
	if time.Since(req.queued) <= keyPatience {
		req.postponed = true
		return
	}
	req.answer(fmt.Errorf("%w: another publish of the same idempotency key, or of the same event, is under way",
		postgres.ErrUnavailable))
}

// takeKeys takes the keys of all requests at once, with whatever stands in the batch. Where another transaction has one
// of them, it takes those of each request by itself.
func (c *claims) takeKeys(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest) error {
	var free []bool
	if len(group) > 0 {
		batch.Queue(takeKeys, c.keyColumns(group)...).QueryRow(func(row pgx.Row) error { return row.Scan(&free) })
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if free != nil || len(group) < 2 {
		c.taken(group, free)
		return nil
	}
	singly := &pgx.Batch{}
	for i := range group {
		one := group[i : i+1]
		singly.Queue(takeKeys, c.keyColumns(one)...).QueryRow(func(row pgx.Row) error {
			var free []bool
			err := row.Scan(&free)
			c.taken(one, free)
			return err
		})
	}
	return conn.SendBatch(ctx, singly).Close()
}

// taken sorts requests by whether their keys were free; nil: another transaction is in the way.
func (c *claims) taken(group []*publishRequest, free []bool) {
	for i, req := range group {
		switch {
		case free == nil:
			c.busy = append(c.busy, req)
		case free[i]:
			c.fresh = append(c.fresh, req)
		default:
			c.repeated = append(c.repeated, req)
		}
	}
}

// keyColumns turns requests into one array per column.
func (c *claims) keyColumns(group []*publishRequest) []any {
	var topics []int64
	var hashes [][]byte
	var sizes []int32
	var ids [][16]byte
	for _, req := range group {
		of := c.ids(req)
		topics, hashes = append(topics, req.Receipt.Topic.ID), append(hashes, keyHash(req.IdempotencyKey))
		sizes, ids = append(sizes, int32(len(of))), append(ids, of...)
	}
	return []any{topics, hashes, sizes, ids}
}

const (
	cleanKeys = `
DELETE FROM postrider_internal.idempotency_keys WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM postrider_internal.idempotency_keys
     WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`
	cleanEvents = `
DELETE FROM postrider_internal.event_keys WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM postrider_internal.event_keys
     WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`
)

// CleanIdempotencyKeys removes the keys of requests and of events that have expired.
func (p *Publisher) CleanIdempotencyKeys(ctx context.Context) error {
	for _, clean := range []string{cleanKeys, cleanEvents} {
		if err := p.db.DeleteInSteps(ctx, clean, queue.CleanStep); err != nil {
			return fmt.Errorf("remove expired keys of publishes: %w", err)
		}
	}
	return nil
}
