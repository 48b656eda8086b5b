package publish

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"

	"github.com/google/uuid"
)

// Publication is one publish request: all its events are stored with their deliveries, or none.
type Publication struct {
	// Topic is the name of the topic.
	Topic string
	// Authorize reports whether the topic may be used; nil allows all. It is called again if the catalog has changed. For
	// a topic that does not exist, it gets one that no access key opens.
	Authorize func(*catalog.Topic) bool
	// Parse makes the events in the topic's input schema. It is called again if another node has just made the topic a
	// relay, which accepts more, or none.
	Parse func(*catalog.Topic) ([]event.Event, error)
	// IdempotencyKey names this publish. Another publish with the same key to the same topic, within 24 hours, stores
	// nothing and gets the same response. 1 to MaxIdempotencyKey bytes; "" for none.
	IdempotencyKey string
	// Memory is the size in bytes of the memory that the events share, if it is never used again; 0 = it is, and Publish
	// copies what it keeps.
	Memory int
}

// Receipt is what was stored.
type Receipt struct {
	Topic  *catalog.Topic
	Events []event.Event
	// SystemIDs are postrider's ids of the events; of a duplicate, that of the event that was published first.
	SystemIDs []uuid.UUID
	// Matched counts the event subscriptions that match each event.
	Matched []int
	// Repeated: earlier publishes of the same idempotency key or events stored this, and nothing was stored now. The rest
	// of the receipt is what would have been stored.
	Repeated bool
	// Duplicates reports for each event whether it was published before, within its topic's DuplicateWindow, and is not
	// stored again; nil: none.
	Duplicates []bool
	// Commit is how long the transaction took.
	Commit time.Duration
}

// Deliveries counts the deliveries of the publication.
func (r *Receipt) Deliveries() int {
	n := 0
	for _, m := range r.Matched {
		n += m
	}
	return n
}

// publishRequest is a publication in the committer.
type publishRequest struct {
	Publication
	Receipt Receipt
	// snapshot is the catalog that admitted the request and filtered its events: the one in memory may be newer or older.
	snapshot    *catalog.Snapshot
	subscribers [][]*catalog.Subscription // that match, per event
	// routed: it has too many deliveries for one transaction. Its route creates them, and subscribers is nil.
	routed bool
	// keyed: it may have been stored before.
	keyed bool
	// firsts are the ids of the first events with the same keys, if duplicates are detected. repeated: the idempotency
	// key is taken.
	firsts   [][16]byte
	repeated bool

	bytes   int64
	queued  time.Time
	claimed atomic.Bool // by a group, or by a client that has disconnected
	// finished and postponed belong to the group. A finished request must never be in another transaction. A postponed
	// one returns to a queue.
	finished, postponed bool
	done                chan error
}

// respond completes a request. A second response is dropped.
func (req *publishRequest) respond(err error) {
	if !req.finished {
		req.finished = true
		req.done <- err
	}
}

// Publish stores the events with a delivery and a job for each event subscription that matches, or with a route that
// creates them if there are very many (see PublisherOptions), and returns after the commit. Errors: ErrNotFound (no
// such topic), ErrUnauthorized, those of Parse, ErrPoison (PostgreSQL rejects this data), ErrUnavailable (overload or
// outage: it is not known whether anything was stored; publish again).
func (p *Publisher) Publish(ctx context.Context, publication Publication) (*Receipt, error) {
	receipt, err := p.publish(ctx, publication)
	if !errors.Is(err, errRelayChanged) {
		return receipt, err
	}
	if err := p.confirm(ctx); err != nil {
		return nil, err
	}
	return p.publish(ctx, publication)
}

// errRelayChanged means: the topic has become a relay, or is none any more, since its events were parsed.
var errRelayChanged = fmt.Errorf("%w: the topic's relay has changed", postgres.ErrUnavailable)

func (p *Publisher) publish(ctx context.Context, publication Publication) (*Receipt, error) {
	req := &publishRequest{Publication: publication, queued: time.Now(), done: make(chan error, 1)}
	if err := p.admit(ctx, req); err != nil {
		return nil, err
	}
	events, err := publication.Parse(req.Receipt.Topic)
	if err != nil {
		events, err = p.parseAgain(ctx, req, err)
	}
	if err != nil {
		return nil, err
	}
	if req.Receipt.Events = events; len(events) == 0 {
		return &req.Receipt, nil
	}
	req.Receipt.SystemIDs = p.IDs.Make(len(req.Receipt.Events))
	for i := range req.Receipt.Events {
		e := &req.Receipt.Events[i]
		req.bytes += int64(len(e.Body))
		if e.Schema == event.Custom { // its time is delivered as it is stored, and PostgreSQL keeps microseconds
			e.Time = e.Time.Truncate(time.Microsecond)
		}
	}
	req.filter(req.snapshot, p.Threshold)
	if err := p.commitOrQueue(ctx, req); err != nil {
		return nil, err
	}
	return &req.Receipt, nil
}

// parseAgain parses events once more after an error of Parse, if the topic has become a relay, or is none any more.
// Azure would not send rejected events again.
func (p *Publisher) parseAgain(ctx context.Context, req *publishRequest, rejected error) ([]event.Event, error) {
	before := req.Receipt.Topic.Relay
	if err := p.admitByCurrent(ctx, req); err != nil {
		return nil, err
	}
	if before == req.Receipt.Topic.Relay {
		return nil, rejected
	}
	return req.Parse(req.Receipt.Topic)
}

// Admit returns a topic that Authorize allows to be used, by the current catalog. ErrNotFound, ErrUnauthorized,
// ErrUnavailable.
func (p *Publisher) Admit(
	ctx context.Context, name string, authorize func(*catalog.Topic) bool,
) (*catalog.Topic, error) {
	req := &publishRequest{Publication: Publication{Topic: name, Authorize: authorize}}
	if err := p.admitByCurrent(ctx, req); err != nil {
		return nil, err
	}
	return req.Receipt.Topic, nil
}

// admit finds the topic and calls Authorize. Before it rejects a request, it confirms that the catalog in memory is
// current, because another node may have created the topic or its key a moment ago.
func (p *Publisher) admit(ctx context.Context, req *publishRequest) error {
	if err := req.admittedBy(p.Cache.Snapshot()); err == nil {
		return nil
	}
	return p.admitByCurrent(ctx, req)
}

func (p *Publisher) admitByCurrent(ctx context.Context, req *publishRequest) error {
	if err := p.confirm(ctx); err != nil {
		return err
	}
	return req.admittedBy(p.Cache.Snapshot())
}

// confirm makes the catalog in memory current.
func (p *Publisher) confirm(ctx context.Context) error {
	if err := p.Cache.Confirm(ctx); err != nil {
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	}
	return nil
}

// ErrUnauthorized means: the publication's Authorize rejected the topic.
var ErrUnauthorized = errors.New("unauthorized")

func (req *publishRequest) admittedBy(c *catalog.Snapshot) error {
	topic, ok := c.Topic(req.Topic)
	if !ok {
		topic = catalog.NoTopic()
	}
	if req.Authorize != nil && !req.Authorize(topic) {
		return ErrUnauthorized
	}
	if !ok {
		return fmt.Errorf("topic %q: %w", req.Topic, postgres.ErrNotFound)
	}
	req.Receipt.Topic, req.snapshot = topic, c
	return nil
}

// filter finds the event subscriptions that match, by one version of the catalog. Above the threshold the request is
// routed and keeps only the numbers: 5,000 events for 1,000 event subscriptions would be a list of 5 million.
func (req *publishRequest) filter(c *catalog.Snapshot, threshold int) {
	req.snapshot = c
	req.subscribers = make([][]*catalog.Subscription, len(req.Receipt.Events))
	req.Receipt.Matched = make([]int, len(req.Receipt.Events))
	deliveries := 0
	for i := range req.Receipt.Events {
		matching := c.Matching(req.Receipt.Topic.ID, &req.Receipt.Events[i])
		req.Receipt.Matched[i] = len(matching)
		deliveries += len(matching)
		if req.routed = req.routed || deliveries > threshold; req.routed {
			req.subscribers = nil
			continue
		}
		req.subscribers[i] = matching
	}
}

// version is that of the catalog; 0 before the request is admitted.
func (req *publishRequest) version() int64 {
	if req.snapshot == nil {
		return 0
	}
	return req.snapshot.Version
}

// refilter filters again after the catalog changed. The topic may have been deleted, or its keys changed.
func (req *publishRequest) refilter(c *catalog.Snapshot) error {
	if req.version() == c.Version {
		return nil
	}
	before := req.Receipt.Topic
	if err := req.admittedBy(c); err != nil {
		return err
	}
	// Deleted and created again under the same name: the events were parsed for another topic.
	if before.ID != req.Receipt.Topic.ID {
		return fmt.Errorf("topic %q was replaced: %w", req.Topic, postgres.ErrNotFound)
	}
	if before.Relay != req.Receipt.Topic.Relay {
		return errRelayChanged
	}
	req.filter(c, math.MaxInt) // a request stays routed or not
	return nil
}

var errStale = errors.New("the catalog has changed")
