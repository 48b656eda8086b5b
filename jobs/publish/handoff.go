package publish

import (
	"bytes"
	"strings"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/queue"
)

// handoff has the deliveries of one group that this node's workers attempt without fetching their jobs (local handoff).
type handoff struct {
	p        *Publisher
	snapshot *catalog.Snapshot // that the group was filtered by
	// reserved workers are free for the group; left of them have no delivery yet.
	reserved, left int
	asOf           time.Time
	works          []*queue.Work // one for each delivery of the group; nil: its job is to be fetched
	copied, copyOf *event.Event
}

// newHandoff is for a transaction that has read the database at asOf or later.
func (p *Publisher) newHandoff(group []*publishRequest, asOf time.Time) *handoff {
	deliveries := deliveriesOf(group)
	h := &handoff{p: p, snapshot: group[0].snapshot, asOf: asOf, works: make([]*queue.Work, 0, deliveries)}
	if p.Handoff != nil && deliveries > 0 {
		h.reserved = p.Handoff.Reserve(deliveries)
		h.left = h.reserved
	}
	return h
}

// reserve reports whether a worker of this node is reserved for the next delivery, unless it is put on hold.
func (h *handoff) reserve(req *publishRequest, i int, sub *catalog.Subscription, admitted bool) bool {
	work := (*queue.Work)(nil)
	if h.left > 0 && admitted && !sub.Batching() && !sub.Pulled() {
		work = h.work(req, i, sub)
	}
	h.works = append(h.works, work)
	if work == nil {
		return false
	}
	h.left--
	return true
}

// work is nil if there is no memory for another body. It leaves the memory that the loader needs.
func (h *handoff) work(req *publishRequest, i int, sub *catalog.Subscription) *queue.Work {
	e := &req.Receipt.Events[i]
	keeps, size := req.keeps(e), len(e.Body)
	if keeps {
		size = req.Memory
	}
	release := h.p.Memory.Spare(int64(size))
	if release == nil {
		return nil
	}
	if h.copyOf != e {
		h.copyOf, h.copied = e, ownCopy(e, keeps)
	}
	work := &queue.Work{SubscriptionID: sub.ID, Free: release}
	work.SetMember(&queue.Member{SystemID: req.Receipt.SystemIDs[i], Event: *h.copied})
	return work
}

// keeps reports whether the body of an event may be kept without a copy: at least half of the memory is used then.
func (p *Publication) keeps(e *event.Event) bool { return p.Memory > 0 && 2*len(e.Body) >= p.Memory }

// ownCopy is an event that shares no memory with the request that contains it, except the body if that is kept. The
// body is released before the rest.
func ownCopy(e *event.Event, keepBody bool) *event.Event {
	c := *e
	if !keepBody {
		c.Body = bytes.Clone(e.Body)
	}
	rest := strings.Join([]string{c.ID, c.Type, c.Subject, c.Source, c.DataVersion, c.Trace.Parent, c.Trace.State}, "")
	for _, s := range []*string{&c.ID, &c.Type, &c.Subject, &c.Source, &c.DataVersion, &c.Trace.Parent, &c.Trace.State} {
		*s, rest = rest[:len(*s)], rest[len(*s):]
	}
	return &c
}

// storedRow is what the publish statement returns: whether it stored the events, the times of its transaction and of
// the database's clock, and the deliveries that this node's workers have now.
type storedRow struct {
	stored               bool
	began, readAt        time.Time
	ids, jobs, positions []int64
}

// commit hands the deliveries that were committed to the workers.
func (h *handoff) commit(row *storedRow) {
	jobs, now := make([]*queue.Work, len(row.ids)), time.Now()
	for n, position := range row.positions {
		w := h.works[position-1]
		h.works[position-1] = nil
		w.Job = queue.JobToken{JobID: row.jobs[n], CreatedAt: row.began}
		w.Members[0].DeliveryID, w.Members[0].TimeToLiveSince = row.ids[n], row.began
		w.NextAttemptAt, w.ReadAt, w.LoadedAt, w.AsOf = row.began, row.readAt, now, h.asOf
		w.SetProbations(queue.ProbationsOf(h.snapshot, w.SubscriptionID), nil)
		jobs[n] = w
	}
	h.end(jobs)
}

// end hands the workers the jobs, and releases the memory of all other deliveries. Called again it does nothing.
func (h *handoff) end(jobs []*queue.Work) {
	for _, w := range h.works {
		if w != nil {
			w.Release()
		}
	}
	h.works = nil
	if h.reserved > 0 {
		h.p.Handoff.Put(h.reserved, jobs)
		h.reserved = 0
	}
}
