package publish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
)

const (
	// MaxIdempotencyKey is the longest idempotency key, in bytes.
	MaxIdempotencyKey = 255

	// keyedGroup bounds a group of requests with keys, which is divided if another transaction has one of the keys.
	keyedGroup = 256
	// keyTimeout is how long a publish waits for a transaction with the same key. Other nodes are faster, but a user's
	// transaction may stay open for hours. The publish tries again each keyPause, and delays no other publish.
	keyTimeout = time.Second
	keyPause   = 20 * time.Millisecond

	// takeEvents takes the keys of new events. It returns for each event the id of the first event with its key.
	takeEvents = "SELECT postrider_internal.try_take_events($1, $2, $3, $4)"
	// takeKeys takes free idempotency keys. It returns for each key whether it was free.
	takeKeys = "SELECT postrider_internal.try_take_keys($1, $2, $3, $4)"
	// requireCatalog is called last, because a key must never be stored without its events. It fails with a
	// serialization failure if the filters used an outdated catalog.
	requireCatalog = "SELECT postrider_internal.require_catalog($1)"
)

// detects reports whether duplicates of the events are detected.
func (req *publishRequest) detects() bool { return req.Receipt.Topic.DuplicateWindow > 0 }

// mayRepeat reports whether events that were published before are not stored again.
func (req *publishRequest) mayRepeat() bool { return req.IdempotencyKey != "" || req.detects() }

// hasBoth reports whether the request has a key, and events whose duplicates are detected. It has its own transaction:
// if one of the keys is taken, the others must not be stored.
func (req *publishRequest) hasBoth() bool { return req.IdempotencyKey != "" && req.detects() }

// eventKey identifies an event within its topic; postrider_internal.event_key computes the same. No source has a zero
// byte.
func eventKey(e *event.Event) (key [16]byte) {
	sum := sha256.Sum256([]byte(e.Source + "\x00" + e.ID))
	return [16]byte(sum[:])
}

// fitsKeyed limits a group of requests with keys: no key occurs twice, and a routed request is alone.
func fitsKeyed() func(*publishRequest) bool {
	fits, keys, n, alone := fitsGroup(), map[string]bool{}, 0, false
	return func(req *publishRequest) bool {
		key, single := req.Topic+"\x00"+req.IdempotencyKey, req.routed || req.hasBoth()
		if n == keyedGroup || alone || single && n > 0 || keys[key] || !fits(req) {
			return false
		}
		n, alone, keys[key] = n+1, single, req.IdempotencyKey != ""
		return true
	}
}

// errDivide: the requests of the group cannot be stored together.
var errDivide = errors.New("another transaction has a key of the group")

// commitKeyed stores the new events of a group. The other events were published before, and get the response of that
// time. The keys are taken by the catalog in memory, which requireCatalog checks; if filtered, by the catalog in the
// snapshot of the transaction. There, a key that was taken after the snapshot is a serialization failure, too.
func (p *Publisher) commitKeyed(ctx context.Context, group []*publishRequest, filtered bool) error {
	if group = unfinished(group); len(group) == 0 {
		return nil
	}
	err := p.begin(ctx, group, filtered, p.storeNew)
	switch {
	case postgres.IsTransient(err):
		return fmt.Errorf("%w: %w", errStale, err)
	case !errors.Is(err, errDivide):
		return err
	case len(group) > 1:
	case time.Since(group[0].queued) > keyTimeout:
		group[0].respond(fmt.Errorf("%w: another publish of the same idempotency key, or of the same event, is in progress",
			postgres.ErrUnavailable))
		return nil
	default: // until the transaction that has its key has ended
		group[0].postponed = true
		return nil
	}
	half := len(group) / 2
	if err := p.commitKeyed(ctx, group[:half], filtered); err != nil {
		return err
	}
	return p.commitKeyed(ctx, group[half:], filtered)
}

// storeNew ends a transaction with the requests of a group that have new events.
func (p *Publisher) storeNew(
	ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest, began time.Time,
) error {
	if len(group) > 1 && slices.ContainsFunc(group, (*publishRequest).hasBoth) { // since the catalog changed
		return errDivide
	}
	if err := take(ctx, conn, batch, group); err != nil {
		return fmt.Errorf("find what was published before: %w", err)
	}
	batch = &pgx.Batch{}
	var stored []*publishRequest
	for _, req := range group {
		if fresh := req.withoutDuplicates(); !req.repeated && len(fresh.Receipt.Events) > 0 {
			stored = append(stored, fresh)
		}
	}
	if len(stored) > 0 {
		if err := p.transact(ctx, conn, batch, stored, began); err != nil {
			return err
		}
	} else {
		batch.Queue(requireCatalog, group[0].version())
		if !group[0].repeated || group[0].firsts == nil { // else no key of an event may be stored
			batch.Queue("COMMIT")
		}
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("end a publish of what was published before: %w", err)
		}
	}
	took := time.Since(began)
	for _, req := range unfinished(group) { // those that transact has not completed
		req.Receipt.Commit = took
		if req.repeated {
			req.Receipt.Repeated = true
		} else if duplicates := req.duplicates(); duplicates != nil {
			req.Receipt.Duplicates, req.Receipt.Repeated = duplicates, !slices.Contains(duplicates, false)
			for i, first := range req.firsts {
				req.Receipt.SystemIDs[i] = first
			}
		}
		req.respond(nil)
	}
	return nil
}

// take runs the batch and takes the keys of a group, in one round trip for events and one for requests: the row of an
// idempotency key has the ids of the first events.
func take(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest) error {
	var detecting, keyed []*publishRequest
	for _, req := range group {
		req.firsts, req.repeated = nil, false
		if req.detects() {
			detecting = append(detecting, req)
		}
		if req.IdempotencyKey != "" {
			keyed = append(keyed, req)
		}
	}
	if len(detecting) > 0 {
		var firsts [][16]byte
		batch.Queue(takeEvents, eventKeyColumns.Append(nil, publishedEvents(detecting))...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&firsts) })
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if firsts == nil {
			return errDivide
		}
		for _, req := range detecting {
			n := len(req.Receipt.Events)
			req.firsts, firsts = firsts[:n:n], firsts[n:]
		}
		batch = &pgx.Batch{}
	}
	var free []bool
	if len(keyed) > 0 {
		batch.Queue(takeKeys, keyColumns(keyed)...).QueryRow(func(row pgx.Row) error { return row.Scan(&free) })
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if len(free) < len(keyed) {
		return errDivide
	}
	for i, req := range keyed {
		req.repeated = !free[i]
	}
	return nil
}

var eventKeyColumns = postgres.Columns[publishedEvent]{
	postgres.Col("topic", func(e publishedEvent) int64 { return e.Receipt.Topic.ID }),
	postgres.Col("minutes", func(e publishedEvent) int {
		return catalog.WholeMinutes(e.Receipt.Topic.DuplicateWindow)
	}),
	postgres.Col("key", func(e publishedEvent) [16]byte { return eventKey(&e.Receipt.Events[e.i]) }),
	postgres.Col("id", func(e publishedEvent) [16]byte { return e.Receipt.SystemIDs[e.i] }),
}

func keyColumns(group []*publishRequest) []any {
	var topics []int64
	var hashes [][]byte
	var sizes []int32
	var ids [][16]byte
	for _, req := range group {
		hash := sha256.Sum256([]byte(req.IdempotencyKey))
		topics, hashes = append(topics, req.Receipt.Topic.ID), append(hashes, hash[:])
		sizes = append(sizes, int32(len(req.Receipt.SystemIDs)))
		for i, id := range req.Receipt.SystemIDs {
			if req.firsts != nil {
				id = req.firsts[i]
			}
			ids = append(ids, id)
		}
	}
	return []any{topics, hashes, sizes, ids}
}

// duplicates reports for each event whether it is a duplicate; nil if none is.
func (req *publishRequest) duplicates() []bool {
	duplicates := make([]bool, len(req.firsts))
	for i, first := range req.firsts {
		duplicates[i] = first != req.Receipt.SystemIDs[i]
	}
	if !slices.Contains(duplicates, true) {
		return nil
	}
	return duplicates
}

// withoutDuplicates returns the request, or one with its new events alone.
func (req *publishRequest) withoutDuplicates() *publishRequest {
	duplicates := req.duplicates()
	if duplicates == nil {
		return req
	}
	fresh := &publishRequest{
		Publication: req.Publication, snapshot: req.snapshot, routed: req.routed, keyed: true, done: make(chan error, 1),
	}
	fresh.Receipt.Topic = req.Receipt.Topic
	for i, duplicate := range duplicates {
		if duplicate {
			continue
		}
		fresh.Receipt.Events = append(fresh.Receipt.Events, req.Receipt.Events[i])
		fresh.Receipt.SystemIDs = append(fresh.Receipt.SystemIDs, req.Receipt.SystemIDs[i])
		fresh.Receipt.Matched = append(fresh.Receipt.Matched, req.Receipt.Matched[i])
		if !req.routed {
			fresh.subscribers = append(fresh.subscribers, req.subscribers[i])
		}
	}
	return fresh
}
