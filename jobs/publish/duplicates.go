package publish

import (
	"context"
	"crypto/sha256"
	"slices"

	"postrider/catalog"
	"postrider/event"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// detects reports whether the events of a request are looked for among those that were published before.
func (req *publishRequest) detects() bool { return req.Receipt.Topic.DuplicateWindow > 0 }

// eventKey is what an event is told by within its topic; postrider_internal.event_key makes the same. No source has a
// zero byte.
func eventKey(e *event.Event) (key [16]byte) {
	sum := sha256.Sum256([]byte(e.Source + "\x00" + e.ID))
	return [16]byte(sum[:])
}

// takeEvents takes the keys of events that are new, and answers the id that stands for each; NULL where another
// transaction is in the way.
const takeEvents = "SELECT postrider_internal.try_take_events($1, $2, $3, $4)"

// claims are the requests of a group by what is known of them.
type claims struct {
	version int64
	// firsts has, for a request whose events were looked for, the id that stands for each of them.
	firsts                map[*publishRequest][][16]byte
	fresh, repeated, busy []*publishRequest
}

// claim takes what is new of a group, in one round trip for events and one for keys, with whatever stands in the batch.
func claim(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest) (*claims, error) {
	c := &claims{version: group[0].version(), firsts: map[*publishRequest][][16]byte{}}
	var detecting, keyed []*publishRequest
	for _, req := range group {
		if req.detects() {
			detecting = append(detecting, req)
		}
	}
	if len(detecting) > 0 {
		if err := c.takeEvents(ctx, conn, batch, detecting); err != nil {
			return nil, err
		}
		batch = &pgx.Batch{}
	}
	for _, req := range group {
		switch {
		case req.detects() && c.firsts[req] == nil:
			c.busy = append(c.busy, req)
		case req.IdempotencyKey != "":
			keyed = append(keyed, req)
		default: // also where the topic has ceased to detect duplicates
			c.fresh = append(c.fresh, req)
		}
	}
	if len(keyed) == 0 && len(detecting) > 0 {
		return c, nil
	}
	return c, c.takeKeys(ctx, conn, batch, keyed)
}

// takeEvents asks for the events of all requests at once. Where somebody is in the way of one, it asks for each request
// by itself.
func (c *claims) takeEvents(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest) error {
	var all [][16]byte
	batch.Queue(takeEvents, eventKeyColumns(group)...).QueryRow(func(row pgx.Row) error { return row.Scan(&all) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if all != nil {
		for _, req := range group {
			n := len(req.Receipt.Events)
			c.firsts[req], all = all[:n:n], all[n:]
		}
		return nil
	}
	if len(group) == 1 {
		return nil
	}
	singly := &pgx.Batch{}
	for _, req := range group {
		singly.Queue(takeEvents, eventKeyColumns([]*publishRequest{req})...).QueryRow(func(row pgx.Row) error {
			var firsts [][16]byte
			err := row.Scan(&firsts)
			c.firsts[req] = firsts
			return err
		})
	}
	return conn.SendBatch(ctx, singly).Close()
}

// eventKeyColumns turns events into one array per column.
func eventKeyColumns(group []*publishRequest) []any {
	var topics []int64
	var minutes []int32
	var keys, ids [][16]byte
	for _, req := range group {
		for i := range req.Receipt.Events {
			topics = append(topics, req.Receipt.Topic.ID)
			minutes = append(minutes, int32(catalog.WholeMinutes(req.Receipt.Topic.DuplicateWindow)))
			keys = append(keys, eventKey(&req.Receipt.Events[i]))
			ids = append(ids, req.Receipt.SystemIDs[i])
		}
	}
	return []any{topics, minutes, keys, ids}
}

// ids are what a request is answered with.
func (c *claims) ids(req *publishRequest) [][16]byte {
	if firsts := c.firsts[req]; firsts != nil {
		return firsts
	}
	ids := make([][16]byte, len(req.Receipt.SystemIDs))
	for i, id := range req.Receipt.SystemIDs {
		ids[i] = id
	}
	return ids
}

// stored are the requests that have something new, each with that alone.
func (c *claims) stored() []*publishRequest {
	stored := make([]*publishRequest, 0, len(c.fresh))
	for _, req := range c.fresh {
		if duplicates := c.duplicates(req); duplicates != nil {
			req = req.without(duplicates)
		}
		if len(req.Receipt.Events) > 0 {
			stored = append(stored, req)
		}
	}
	return stored
}

// duplicates says of each event of a request whether another one stands for it; nil where none does.
func (c *claims) duplicates(req *publishRequest) []bool {
	duplicates := make([]bool, len(c.firsts[req]))
	for i, first := range c.firsts[req] {
		duplicates[i] = first != req.Receipt.SystemIDs[i]
	}
	if !slices.Contains(duplicates, true) {
		return nil
	}
	return duplicates
}

// without is a request of its own, with the rest of the events.
func (req *publishRequest) without(duplicates []bool) *publishRequest {
	rest := &publishRequest{
		Publication: req.Publication, catalogue: req.catalogue, routed: req.routed, keyed: true, done: make(chan error, 1),
	}
	rest.Receipt.Topic = req.Receipt.Topic
	for i, duplicate := range duplicates {
		if duplicate {
			continue
		}
		rest.Receipt.Events = append(rest.Receipt.Events, req.Receipt.Events[i])
		rest.Receipt.SystemIDs = append(rest.Receipt.SystemIDs, req.Receipt.SystemIDs[i])
		rest.Receipt.Matched = append(rest.Receipt.Matched, req.Receipt.Matched[i])
		if !req.routed {
			rest.wanting = append(rest.wanting, req.wanting[i])
		}
	}
	return rest
}

// end is how a transaction ends that has stored nothing: not even keys of events where the request's own key was taken
// before.
func (c *claims) end() string {
	for _, req := range slices.Concat(c.repeated, c.busy) {
		if c.firsts[req] != nil {
			return "ROLLBACK"
		}
	}
	return "COMMIT"
}

// answer tells the publishers, after the commit.
func (c *claims) answer() {
	for _, req := range c.fresh {
		if duplicates := c.duplicates(req); duplicates != nil {
			req.Receipt.Duplicates, req.Receipt.Repeated = duplicates, !slices.Contains(duplicates, false)
			for i, first := range c.firsts[req] {
				req.Receipt.SystemIDs[i] = first
			}
		}
		req.answer(nil)
	}
	for _, req := range c.repeated {
		req.Receipt.Repeated = true
		req.answer(nil)
	}
	for _, req := range c.busy {
		req.postpone()
	}
}
