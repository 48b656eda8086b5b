package store

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"postrider/event"
)

// handoverAge is how old a look at the holds may be when its attempt begins. A publish stores deliveries that are attempted at
// once with jobs that this node has already: to fetch and to load what it has just written would take two more transactions, a
// third of PostgreSQL's time. So that no attempt begins after a pause was answered and has not seen it, the answer to a pause waits for as long.
const handoverAge = 100 * time.Millisecond

// Handed is a job that its own publish gave to this node: it was never fetched, and its delivery need not be loaded.
type Handed struct {
	Job  Job
	Work *Work
}

// Fresh reports whether the attempt may begin with this Work. Else the delivery is to be loaded again.
func (w *Work) Fresh() bool { return time.Since(w.asOf) < handoverAge }

// hands are the engine's: take says how many of n jobs it takes over now, give brings what came of as many as it took.
type hands struct {
	take func(n int) int
	give func(taken int, handed []Handed)
}

// SetHands lets publishes give their jobs to this process. take is asked before each group for up to n jobs; give is called once
// for each take that was not 0, when the jobs are committed or will never be. Call it before anything is published.
func (s *Store) SetHands(take func(n int) int, give func(taken int, handed []Handed)) {
	s.hands = hands{take, give}
}

// handover is what one group of publishes gives away.
type handover struct {
	store       *Store
	catalogue   *Catalogue // that the group was filtered by
	taken, left int
	asOf        time.Time
	works       []*Work // one for each delivery of the group; nil: its job is to be fetched
	copied      *event.Event
	copyOf      *event.Event
}

// newHandover is for a transaction that began to look at the database at asOf, or later.
func (s *Store) newHandover(group []*publishRequest, asOf time.Time) *handover {
	deliveries := deliveriesOf(group)
	h := &handover{store: s, catalogue: group[0].catalogue, asOf: asOf, works: make([]*Work, 0, deliveries)}
	if s.hands.take != nil && deliveries > 0 {
		h.taken = s.hands.take(deliveries)
		h.left = h.taken
	}
	return h
}

// offer says whether the next delivery is given away, if its job turns out not to have to wait.
func (h *handover) offer(req *publishRequest, i int, sub *Subscription, admitted bool) bool {
	work := (*Work)(nil)
	if h.left > 0 && admitted && !sub.Batching() {
		work = h.work(req, i, sub)
	}
	h.works = append(h.works, work)
	if work == nil {
		return false
	}
	h.left--
	return true
}

// work is nil where there is no memory for another body. What the loader needs to go on stays free: the deliveries that are to be
// loaded would else wait for as long as anything is published.
func (h *handover) work(req *publishRequest, i int, sub *Subscription) *Work {
	e := &req.receipt.Events[i]
	release := h.store.loader.spare(int64(len(e.Body)))
	if release == nil {
		return nil
	}
	if h.copyOf != e {
		h.copyOf, h.copied = e, ownCopy(e)
	}
	return &Work{SubscriptionID: sub.ID, SystemID: req.receipt.SystemIDs[i], Event: *h.copied, release: release}
}

// ownCopy is an event that shares no memory with the request that brought it.
func ownCopy(e *event.Event) *event.Event {
	c := *e
	c.Body = bytes.Clone(e.Body)
	for _, s := range []*string{&c.ID, &c.Type, &c.Subject, &c.Source, &c.DataVersion, &c.Trace.Parent, &c.Trace.State} {
		*s = strings.Clone(*s)
	}
	return &c
}

// handedRow is what the statement answers: its time, that of the database's clock, and the deliveries that were given away.
type handedRow struct {
	began, readAt     time.Time
	ids, jobs, places []int64
}

// done gives away what was committed.
func (h *handover) done(row *handedRow) {
	handed, now := make([]Handed, len(row.ids)), time.Now()
	for n, place := range row.places {
		w := h.works[place-1]
		h.works[place-1] = nil
		w.DeliveryID, w.JobID = row.ids[n], &row.jobs[n]
		w.OwedSince, w.NextAttemptAt, w.readAt, w.loadedAt, w.asOf = row.began, row.began, row.readAt, now, h.asOf
		w.rests(h.catalogue.restOf(w.SubscriptionID), nil, row.jobs[n])
		handed[n] = Handed{Work: w, Job: h.job(w, row.began)}
	}
	h.end(handed)
}

func (h *handover) job(w *Work, now time.Time) Job {
	return Job{
		ID: *w.JobID, Attempt: 1, MaxAttempts: 1000, Kind: DeliverKind, Queue: DeliverQueue, Priority: 1, Metadata: []byte("{}"),
		Args: fmt.Appendf(nil, `{"d":%d,"s":%d,"n":1}`, w.DeliveryID, w.SubscriptionID), CreatedAt: now, ScheduledAt: now, AttemptedAt: now, AttemptedBy: []string{h.store.node},
	}
}

// end gives the memory of all others back.
func (h *handover) end(handed []Handed) {
	for _, w := range h.works {
		if w != nil {
			w.release()
		}
	}
	h.works = nil
	if h.taken > 0 {
		h.store.hands.give(h.taken, handed)
		h.taken = 0
	}
}
