package publish

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

const (
	// MaxIdempotencyKey is how many bytes a key may have.
	MaxIdempotencyKey = 255

	// keyedGroup bounds how many keys are taken one by one if another transaction has one of them.
	keyedGroup = 256
	// keyPatience is how long a publish waits while another one has its key: other nodes are done by then, but a user's
	// transaction may stay open for hours. Meanwhile it tries again each keyPause, and delays no other publish.
	keyPatience = time.Second
	keyPause    = 20 * time.Millisecond
)

// takeKeys takes keys that are free, and returns for each whether it was; NULL if another transaction has one of them.
const takeKeys = "SELECT postrider_internal.try_take_keys($1, $2, $3, $4)"

// requireCatalogue is called last, because a key must never be stored without its events: it fails with a serialization
// failure if the filters used an outdated catalog.
const requireCatalogue = "SELECT postrider_internal.require_catalogue($1)"

func keyHash(key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return hash[:]
}

// mayRepeat reports whether events that were published before are not stored again.
func (req *publishRequest) mayRepeat() bool { return req.IdempotencyKey != "" || req.detects() }

// hasBoth reports whether the request has a key, and events whose duplicates are detected.
func (req *publishRequest) hasBoth() bool { return req.IdempotencyKey != "" && req.detects() }

// fitsKeyed limits a group of requests with keys: a transaction takes the same key once, and a routed request is alone
// in it.
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

// key is unique among all topics.
func (req *publishRequest) key() string { return req.Topic + "\x00" + req.IdempotencyKey }

// commitKeyed stores the new events of a group; the others were published before and get the response of that time. A
// request with a key and events to check has its own transaction: if one of them cannot be had, the other must not be
// stored.
func (p *Publisher) commitKeyed(ctx context.Context, group []*publishRequest, filtered bool) error {
	var together []*publishRequest
	for _, req := range group {
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

// claimAndStore takes keys by the catalog in memory, and requireCatalogue checks that it is current; if filtered, by
// the catalog in the snapshot of the transaction. There, a key that was taken after the snapshot is a serialization
// failure too. All these failures are tried again.
func (p *Publisher) claimAndStore(ctx context.Context, group []*publishRequest, filtered bool) error {
	err := p.begin(ctx, group, filtered, p.storeNew)
	if postgres.IsTransient(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// storeNew ends a transaction with the requests of a group that are new.
func (p *Publisher) storeNew(
	ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest, began time.Time,
) error {
	if len(group) > 1 && slices.ContainsFunc(group, (*publishRequest).hasBoth) { // since the catalog changed
		return errStale
	}
	claims, err := claim(ctx, conn, batch, group)
	if err != nil {
		return fmt.Errorf("look for what was published before: %w", err)
	}
	batch = &pgx.Batch{}
	if fresh := claims.stored(); len(fresh) > 0 {
		err = p.transact(ctx, conn, batch, fresh, began)
	} else {
		batch.Queue(requireCatalogue, claims.version)
		batch.Queue(claims.end())
		if err = conn.SendBatch(ctx, batch).Close(); err != nil {
			err = fmt.Errorf("end a publish of what was published before: %w", err)
		}
	}
	if err == nil {
		claims.answer()
	}
	return err
}

// deferBusy lets requests wait for the transactions that have their keys. After that they may be in another group.
func (p *Publisher) deferBusy(group []*publishRequest) {
	for _, req := range group {
		if req.postponed {
			req.claimed.Store(false) // its client may go away again
			time.AfterFunc(keyPause, func() { p.waiting.Add(req) })
		}
	}
}

// postpone defers a request, unless it has waited long enough.
func (req *publishRequest) postpone() {
	if time.Since(req.queued) <= keyPatience {
		req.postponed = true
		return
	}
	req.answer(fmt.Errorf("%w: another publish of the same idempotency key, or of the same event, is in progress",
		postgres.ErrUnavailable))
}

// taken divides requests by whether their keys were free; nil: another transaction has one of them.
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
