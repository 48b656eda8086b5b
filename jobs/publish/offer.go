package publish

import (
	"bytes"
	"strings"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/queue"
)

// offers are the deliveries of one group that this node's workers attempt without fetching their jobs (local handoff).
type offers struct {
	p        *Publisher
	snapshot *catalog.Snapshot // that the group was filtered by
	// reserved workers are free for the group; left of them have no delivery yet.
	reserved, left int
	asOf           time.Time
	works          []*queue.Work // one for each delivery of the group; nil: its job is to be fetched
	copied, copyOf *event.Event
}

// newOffers is for a transaction that has read the database at asOf or later.
func (p *Publisher) newOffers(group []*publishRequest, asOf time.Time) *offers {
	deliveries := deliveriesOf(group)
	o := &offers{p: p, snapshot: group[0].snapshot, asOf: asOf, works: make([]*queue.Work, 0, deliveries)}
	if p.Handoff != nil && deliveries > 0 {
		o.reserved = p.Handoff.Reserve(deliveries)
		o.left = o.reserved
	}
	return o
}

// offer reports whether the next delivery is for this node's workers, unless it is put on hold.
func (o *offers) offer(req *publishRequest, i int, sub *catalog.Subscription, admitted bool) bool {
	work := (*queue.Work)(nil)
	if o.left > 0 && admitted && !sub.Batching() && !sub.Pulled() {
		work = o.work(req, i, sub)
	}
	o.works = append(o.works, work)
	if work == nil {
		return false
	}
	o.left--
	return true
}

// work is nil if there is no memory for another body. It leaves the memory that the loader needs.
func (o *offers) work(req *publishRequest, i int, sub *catalog.Subscription) *queue.Work {
	e := &req.Receipt.Events[i]
	release := o.p.Memory.Spare(int64(len(e.Body)))
	if release == nil {
		return nil
	}
	if o.copyOf != e {
		o.copyOf, o.copied = e, ownCopy(e)
	}
	work := &queue.Work{SubscriptionID: sub.ID, Free: release}
	work.SetMember(&queue.Member{SystemID: req.Receipt.SystemIDs[i], Event: *o.copied})
	return work
}

// ownCopy is an event that shares no memory with the request that contains it.
func ownCopy(e *event.Event) *event.Event {
	c := *e
	c.Body = bytes.Clone(e.Body)
	rest := strings.Join([]string{c.ID, c.Type, c.Subject, c.Source, c.DataVersion, c.Trace.Parent, c.Trace.State}, "")
	for _, s := range []*string{&c.ID, &c.Type, &c.Subject, &c.Source, &c.DataVersion, &c.Trace.Parent, &c.Trace.State} {
		*s, rest = rest[:len(*s)], rest[len(*s):]
	}
	return &c
}

// offeredRow is what the publish statement returns: whether it stored the events, the times of its transaction and of
// the database's clock, and the deliveries that this node's workers have now.
type offeredRow struct {
	stored               bool
	began, readAt        time.Time
	ids, jobs, positions []int64
}

// commit gives the deliveries that were committed to the workers.
func (o *offers) commit(row *offeredRow) {
	jobs, now := make([]*queue.Work, len(row.ids)), time.Now()
	for n, position := range row.positions {
		w := o.works[position-1]
		o.works[position-1] = nil
		w.Job = queue.JobToken{JobID: row.jobs[n], CreatedAt: row.began}
		w.Members[0].DeliveryID, w.Members[0].TimeToLiveSince = row.ids[n], row.began
		w.NextAttemptAt, w.ReadAt, w.LoadedAt, w.AsOf = row.began, row.readAt, now, o.asOf
		w.SetProbation(queue.ProbationOf(o.snapshot, w.SubscriptionID), nil)
		jobs[n] = w
	}
	o.end(jobs)
}

// end gives the workers the jobs, and releases the memory of all other deliveries. Called again it does nothing.
func (o *offers) end(jobs []*queue.Work) {
	for _, w := range o.works {
		if w != nil {
			w.Release()
		}
	}
	o.works = nil
	if o.reserved > 0 {
		o.p.Handoff.Give(o.reserved, jobs)
		o.reserved = 0
	}
}
