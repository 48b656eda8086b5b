// Package publish accepts events. Publisher.Publish is T1: one group-committed transaction stores the events, their
// deliveries and a job for each attempt. Large publishes and publishes by SQL become routes.
package publish

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

// Publisher stores published events with their deliveries and jobs. Its methods may be called from any goroutine.
// Publish and Route need Run.
type Publisher struct {
	PublisherParts
	PublisherOptions

	// The queues of requests. routed are those that are stored with a route, keyed those that may have been stored before:
	// with an idempotency key, or of a topic that detects duplicates. waiting are those of keyed that met another
	// transaction with the same key. They have a separate queue, so that they delay no other request.
	small, large, routed, keyed, waiting *postgres.Batcher[*publishRequest]
	queuedRequests                       atomic.Int64
	bodies                               *bodies

	routes     *postgres.Batcher[*routeRequest]
	optimistic int // optimisticTries
	stepLimit  int // deliveries per step: routeStep
	stepBytes  int // of bodies per step: routeBytes
	// obstacles are event subscriptions that were on hold, or had a failing endpoint. They only save round trips: the
	// plain statement checks them.
	obstacles  queue.Until[int64]
	groups     *postgres.Histogram
	commitTime *postgres.Histogram
}

// PublisherParts are the objects that a Publisher needs. Handoff and Backpressure are nil on a node that makes no
// attempts.
type PublisherParts struct {
	DB           *postgres.DB
	Cache        *catalog.Cache
	IDs          *postgres.IDs
	Traffic      *queue.Traffic
	Notifier     *queue.Notifier
	Handoff      *queue.Handoff
	Backpressure *queue.Backpressure
	Memory       *queue.Memory
	Commits      *postgres.Commits
}

// PublisherOptions of a Publisher. Threshold is how many deliveries a request may have before they are created in
// steps, by a route job, and not in the transaction that is committed before the response; default 10,000.
type PublisherOptions struct {
	Node      string
	Threshold int
	Log       *slog.Logger
	Failpoint postgres.Failpoint
}

// NewPublisher makes a Publisher with empty queues.
func NewPublisher(parts PublisherParts, o PublisherOptions) *Publisher {
	o.Threshold = cmp.Or(o.Threshold, routeThreshold)
	const ms = int64(time.Millisecond)
	return &Publisher{
		PublisherParts: parts, PublisherOptions: o,
		small: postgres.NewGatheringBatcher[*publishRequest](gathering), large: postgres.NewBatcher[*publishRequest](),
		routed: postgres.NewBatcher[*publishRequest](), keyed: postgres.NewBatcher[*publishRequest](),
		waiting: postgres.NewBatcher[*publishRequest](), routes: postgres.NewBatcher[*routeRequest](),
		bodies: newBodies(), optimistic: optimisticTries, stepLimit: routeStep, stepBytes: routeBytes,
		groups:     postgres.NewHistogram(1, 2, 5, 10, 20, 50, 100, 200, 500, groupEvents),
		commitTime: postgres.NewHistogram(ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 1000*ms, 5000*ms),
	}
}

// Run stores what Publish and Route have queued until ctx ends, and then the rest, if the database is available.
func (p *Publisher) Run(ctx context.Context) {
	var group, last sync.WaitGroup
	postponing, stop := context.WithCancel(context.WithoutCancel(ctx)) // until no queue can postpone requests any more
	run := func(running context.Context, b *postgres.Batcher[*publishRequest], fits func() func(*publishRequest) bool) {
		var fit func(*publishRequest) bool // of the group that was taken last
		limit := func() func(*publishRequest) bool { fit = fits(); return fit }
		more := func() []*publishRequest { return b.TakeMore(fit) }
		b.Run(running, limit, func(group []*publishRequest) { p.pace(ctx, group, more) })
	}
	last.Go(func() { run(postponing, p.waiting, fitsKeyed) })
	start := func(b *postgres.Batcher[*publishRequest], atOnce int, fits func() func(*publishRequest) bool) {
		for range atOnce {
			group.Go(func() { run(ctx, b, fits) })
		}
	}
	start(p.small, 1, fitsGroup)
	start(p.large, largeAtOnce, fitsGroup)
	start(p.routed, routesAtOnce, postgres.AtMost[*publishRequest](1))
	start(p.keyed, keyedAtOnce, fitsKeyed)
	flushRoutes := func(group []*routeRequest) { p.flushRoutes(ctx, group) }
	p.routes.Run(ctx, postgres.AtMost[*routeRequest](routeGroup), flushRoutes)
	group.Wait()
	stop()
	last.Wait()
}

// PublishCounters count since the process began.
type PublishCounters struct {
	// Groups are the transactions that stored events, by how many events each had; Time by how long each took, in
	// nanoseconds.
	Groups, Time postgres.Distribution
	// Waiting are the requests that wait for memory or for their commit. WaitingBytes are the bodies for which memory is
	// reserved.
	Waiting, WaitingBytes int64
}

// PublishCounters reads the counters.
func (p *Publisher) PublishCounters() PublishCounters {
	return PublishCounters{
		Groups: p.groups.Read(), Time: p.commitTime.Read(),
		Waiting: p.queuedRequests.Load(), WaitingBytes: p.bodies.small.reserved.Load() + p.bodies.large.reserved.Load(),
	}
}
