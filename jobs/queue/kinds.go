// Package queue has the job rows of River, the nodes that work on them and their leases, wake-ups, the local handoff,
// the traffic of each event subscription and the memory for bodies.
package queue

// The kinds of jobs, and River's queues that they are in.
const (
	// DeliverKind is the kind of a delivery attempt's job.
	DeliverKind = "deliver"
	// BatchKind is the kind of the jobs that send batches. One whose arguments name no batch is a batch cutter: it cuts
	// the next batch from the open deliveries, and then is that batch's job.
	BatchKind = "batch"
	// DeliverQueue is the queue of all attempts. A queue for each of a thousand event subscriptions would take half a
	// core.
	DeliverQueue = "deliveries"

	// LockQueue has the jobs that are due when a consumer's lock ends, see package pull. No worker fetches them: a
	// statement ends many locks at once.
	LockQueue = "locks"

	// RouteKind is the kind of the jobs that create the deliveries of a route, see docs/internals/delivery.md.
	RouteKind = "route"
	// RouteQueue is a separate queue: routes do not wait for deliveries to other events' endpoints.
	RouteQueue = "routes"

	// HandshakeKind is the kind of the jobs that make one request of a handshake, see docs/guides/receive.md.
	HandshakeKind = "handshake"
	// HandshakeQueue is a separate queue: handshakes and deliveries do not wait for each other.
	HandshakeQueue = "handshakes"

	// ExportKind is the kind of the jobs that write dead letters to an external location, see docs/guides/dead-letters.md.
	ExportKind = "export"
	// ExportQueue is a separate queue: a location that hangs delays no delivery.
	ExportQueue = "exports"

	// OperationKind is the kind of the jobs that make one step of an operation, see docs/guides/dead-letters.md.
	OperationKind = "operation"
	// OperationQueue is a separate queue: steps and deliveries do not wait for each other.
	OperationQueue = "operations"
)

// The kinds of jobs that this program can replace. During a rolling upgrade the queue may have kinds of a newer
// version, which only nodes of that version handle: their arguments, and the rows that name them, are unknown here.
var (
	deliveryKinds = []string{DeliverKind, BatchKind}
	// ownedKinds have a row that names the job: a route, a handshake, an export or an operation. Row and job change in one
	// transaction, and only the statement that deletes the job changes the row. The next step is another job.
	ownedKinds = []string{RouteKind, HandshakeKind, ExportKind, OperationKind}
)
