package publish

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"postrider/catalog"
	"postrider/event"
	"postrider/postgres"

	"github.com/google/uuid"
)

// Publication is one publish request: all its events are stored with everything they owe, or none.
type Publication struct {
	// Topic is the name of the topic.
	Topic string
	// Authorize is asked with the topic as the filters see it, again whenever the catalogue turns out to have moved;
	// nil allows. For a topic that does not exist it is asked with one that no access key opens.
	Authorize func(*catalog.Topic) bool
	// Parse makes the events in the topic's input schema. It is asked once.
	Parse func(*catalog.Topic) ([]event.Event, error)
	// IdempotencyKey names this publish: another one with the same key to the same topic, within 24 hours, stores nothing
	// and is answered as this one. 1 to MaxIdempotencyKey bytes; "" for none.
	IdempotencyKey string
}

// Receipt is what was stored.
type Receipt struct {
	Topic  *catalog.Topic
	Events []event.Event
	// SystemIDs are our ids of the events, in their order; of a duplicate, that of the event that was published first.
	SystemIDs []uuid.UUID
	// Matched counts the event subscriptions that want each event.
	Matched []int
	// Repeated: this was stored by earlier publishes, of the same idempotency key or the same events, and nothing was
	// stored now. The rest of the receipt says what would have been.
	Repeated bool
	// Duplicates says of each event whether it was published before, within its topic's DuplicateWindow, and is not stored
	// again; nil: none.
	Duplicates []bool
	// Commit is how long the transaction took that stored them.
	Commit time.Duration
}

// Deliveries is how many deliveries the publication owes.
func (r *Receipt) Deliveries() int {
	n := 0
	for _, m := range r.Matched {
		n += m
	}
	return n
}

// publishRequest is a publication on its way through the committer.
type publishRequest struct {
	Publication
	Receipt Receipt
	// catalogue is the one that wanting was taken from. Whatever else is said of those event subscriptions has to be, too:
	// the one in memory may be older.
	catalogue *catalog.Snapshot
	wanting   [][]*catalog.Subscription // per event
	// routed: it owes too many deliveries for one transaction. They are made by its route, and wanting is nil.
	routed bool
	// keyed: it may have been stored before, and goes by the committer's keyed lane.
	keyed   bool
	bytes   int64
	queued  time.Time
	claimed atomic.Bool // by the committer's group, or by a client that went away
	// answered is only the committer's: a request with an answer must never be in another transaction.
	answered bool
	// postponed is its, too: the request is on its way back to the queue.
	postponed bool
	done      chan error
}

// answer tells the waiting publisher. A second answer is dropped.
func (req *publishRequest) answer(err error) {
	if req.answered {
		return
	}
	req.answered = true
	req.done <- err
}

// Publish stores the events with a delivery and a job for each event subscription that matches, or with a route that
// creates them if there are very many (see PublisherOptions), and returns after the commit. Errors: ErrNotFound (no
// such topic), ErrUnauthorized, those of Parse, ErrPoison (PostgreSQL rejects this data), ErrUnavailable (overload or
// outage: nothing is known to be stored, publish again).
func (p *Publisher) Publish(ctx context.Context, publication Publication) (*Receipt, error) {
	req := &publishRequest{Publication: publication, queued: time.Now(), done: make(chan error, 1)}
	if err := p.admit(ctx, req); err != nil {
		return nil, err
	}
	events, err := publication.Parse(req.Receipt.Topic)
	if err != nil {
		return nil, err
	}
	if req.Receipt.Events = events; len(events) == 0 {
		return &req.Receipt, nil
	}
	req.identify(p.IDs)
	req.filter(p.Cache.Snapshot(), p.Threshold)
	if err := p.commitOrQueue(ctx, req); err != nil {
		return nil, err
	}
	return &req.Receipt, nil
}

// admit finds the topic and asks Authorize. A no is only given after looking whether the catalogue in memory is the
// newest: a topic or a key made a moment ago on another node must work here. Requests that come together share that
// look.
func (p *Publisher) admit(ctx context.Context, req *publishRequest) error {
	if err := req.admittedBy(p.Cache.Snapshot()); err == nil {
		return nil
	}
	if err := p.Cache.Confirm(ctx); err != nil {
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	}
	return req.admittedBy(p.Cache.Snapshot())
}

// ErrUnauthorized means: the publication's Authorize rejected the topic as it is now.
var ErrUnauthorized = errors.New("unauthorized")

func (req *publishRequest) admittedBy(c *catalog.Snapshot) error {
	topic, ok := c.Topic(req.Topic)
	if !ok && req.Authorize != nil && !req.Authorize(catalog.NoTopic()) {
		return ErrUnauthorized
	}
	if !ok {
		return fmt.Errorf("topic %q: %w", req.Topic, postgres.ErrNotFound)
	}
	if req.Authorize != nil && !req.Authorize(topic) {
		return ErrUnauthorized
	}
	req.Receipt.Topic = topic
	return nil
}

func (req *publishRequest) identify(from *postgres.IDs) {
	req.Receipt.SystemIDs = from.Make(len(req.Receipt.Events))
	for i := range req.Receipt.Events {
		e := &req.Receipt.Events[i]
		req.bytes += int64(len(e.Body))
		if e.Schema == event.Custom { // its time is delivered as it is stored, and PostgreSQL keeps microseconds
			e.Time = e.Time.Truncate(time.Microsecond)
		}
	}
}

// filter decides who is owed what, by one version of the catalogue. Past the threshold the request is routed, and only
// the numbers are kept: 5,000 events for 1,000 event subscriptions would be a list of 5 million.
func (req *publishRequest) filter(c *catalog.Snapshot, threshold int) {
	req.catalogue = c
	req.wanting = make([][]*catalog.Subscription, len(req.Receipt.Events))
	req.Receipt.Matched = make([]int, len(req.Receipt.Events))
	owed := 0
	for i := range req.Receipt.Events {
		wanting := c.Matching(req.Receipt.Topic.ID, &req.Receipt.Events[i])
		req.Receipt.Matched[i] = len(wanting)
		owed += len(wanting)
		if req.routed = req.routed || owed > threshold; req.routed {
			req.wanting = nil
			continue
		}
		req.wanting[i] = wanting
	}
}

// version is that of the catalogue; 0 before the first filtering.
func (req *publishRequest) version() int64 {
	if req.catalogue == nil {
		return 0
	}
	return req.catalogue.Version
}

// refilter decides again after the catalogue moved. The topic may be gone, or its keys changed.
func (req *publishRequest) refilter(c *catalog.Snapshot) error {
	if req.version() == c.Version {
		return nil
	}
	before := req.Receipt.Topic
	if err := req.admittedBy(c); err != nil {
		return err
	}
	// Deleted and made again under the same name: the events were parsed for another topic.
	if before.ID != req.Receipt.Topic.ID {
		return fmt.Errorf("topic %q was replaced: %w", req.Topic, postgres.ErrNotFound)
	}
	req.filter(c, math.MaxInt) // it is routed or it is not: that was settled when it came
	return nil
}

var errStale = errors.New("the catalogue moved")
