package publish

import (
	"context"
	"crypto/sha256"
	"slices"

	"postrider/catalog"
	"postrider/event"
	"postrider/postgres"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// detects reports whether duplicates of the events are detected.
func (req *publishRequest) detects() bool { return req.Receipt.Topic.DuplicateWindow > 0 }

// eventKey identifies an event within its topic; postrider_internal.event_key computes the same. No source has a zero
// byte.
func eventKey(e *event.Event) (key [16]byte) {
	sum := sha256.Sum256([]byte(e.Source + "\x00" + e.ID))
	return [16]byte(sum[:])
}

// takeEvents takes the keys of new events, and returns for each event the id of the first one with its key; NULL if
// another transaction has one of the keys.
const takeEvents = "SELECT postrider_internal.try_take_events($1, $2, $3, $4)"

// claims are the requests of a group, by whether they are new.
type claims struct {
	version int64
	// firsts has, for a request whose duplicates are detected, the id of the first event for each of its events.
	firsts                map[*publishRequest][][16]byte
	fresh, repeated, busy []*publishRequest
}

// claim takes the keys of a group, in one round trip for events and one for requests, together with the statements of
// the batch.
func claim(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, group []*publishRequest) (*claims, error) {
	c := &claims{version: group[0].version(), firsts: map[*publishRequest][][16]byte{}}
	var detecting, keyed []*publishRequest
	for _, req := range group {
		if req.detects() {
			detecting = append(detecting, req)
		}
	}
	if len(detecting) > 0 {
		if err := take(ctx, conn, batch, takeEvents, detecting, eventKeys, c.found); err != nil {
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
		default: // or the topic does not detect duplicates any more
			c.fresh = append(c.fresh, req)
		}
	}
	switch {
	case len(keyed) > 0:
		return c, take(ctx, conn, batch, takeKeys, keyed, c.keyColumns, c.taken)
	case len(detecting) == 0:
		return c, conn.SendBatch(ctx, batch).Close()
	}
	return c, nil
}

// take takes the keys of all requests at once, together with the statements of the batch, and calls use with what the
// statement returns for them. If another transaction has one of the keys, it takes those of each request separately.
// nil: another transaction has one of them.
func take[V any](
	ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, statement string, group []*publishRequest,
	args func([]*publishRequest) []any, use func([]*publishRequest, []V),
) error {
	var all []V
	batch.Queue(statement, args(group)...).QueryRow(func(row pgx.Row) error { return row.Scan(&all) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if all != nil || len(group) == 1 {
		use(group, all)
		return nil
	}
	singly := &pgx.Batch{}
	for i := range group {
		one := group[i : i+1]
		singly.Queue(statement, args(one)...).QueryRow(func(row pgx.Row) error {
			var values []V
			err := row.Scan(&values)
			use(one, values)
			return err
		})
	}
	return conn.SendBatch(ctx, singly).Close()
}

// found sets the ids of the first events of requests; nil: another transaction has one of the keys.
func (c *claims) found(group []*publishRequest, firsts [][16]byte) {
	for _, req := range group {
		if firsts != nil {
			n := len(req.Receipt.Events)
			c.firsts[req], firsts = firsts[:n:n], firsts[n:]
		}
	}
}

// eventKeyColumns are the parameters of takeEvents.
var eventKeyColumns = postgres.Columns[publishedEvent]{
	postgres.Col("topic", "bigint", func(e publishedEvent) int64 { return e.Receipt.Topic.ID }),
	postgres.Col("minutes", "int", func(e publishedEvent) int {
		return catalog.WholeMinutes(e.Receipt.Topic.DuplicateWindow)
	}),
	postgres.Col("key", "uuid", func(e publishedEvent) [16]byte { return eventKey(&e.Receipt.Events[e.i]) }),
	postgres.Col("id", "uuid", func(e publishedEvent) [16]byte { return e.Receipt.SystemIDs[e.i] }),
}

func eventKeys(group []*publishRequest) []any {
	return eventKeyColumns.Append(nil, publishedEvents(group))
}

// ids are the event ids of the response.
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

// stored returns the requests that have new events, each with these alone.
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

// duplicates reports for each event of a request whether it is a duplicate; nil if none is.
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

// without returns a request with the events that are no duplicates.
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

// end returns how a transaction ends that has stored nothing. It must not store keys of events if the key of their
// request was taken before.
func (c *claims) end() string {
	for _, req := range slices.Concat(c.repeated, c.busy) {
		if c.firsts[req] != nil {
			return "ROLLBACK"
		}
	}
	return "COMMIT"
}

// answer completes the requests, after the commit.
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
