// Package queue has the job rows of River, the nodes that work on them and their leases, wake-ups, the local handoff,
// the traffic of each event subscription and the memory for bodies.
package queue

// The kinds of jobs.
const (
	// DeliverKind is the kind of a delivery attempt's job.
	DeliverKind = "deliver"
	// BatchKind is the kind of the jobs that send batches. One whose arguments name no batch is a batch cutter: it cuts
	// the next batch from the open deliveries, and then is that batch's job.
	BatchKind = "batch"
	// RouteKind is the kind of the jobs that create the deliveries of a route, see docs/internals/delivery.md.
	RouteKind = "route"
	// HandshakeKind is the kind of the jobs that make one request of a handshake, see docs/guides/receive.md.
	HandshakeKind = "handshake"
	// ExportKind is the kind of the jobs that write dead letters to an external location, see docs/guides/dead-letters.md.
	ExportKind = "export"
	// OperationKind is the kind of the jobs that make one step of an operation, see docs/guides/dead-letters.md.
	OperationKind = "operation"
)

// River's queues. DeliverQueue has all attempts: a queue for each of a thousand event subscriptions would take half a
// core. No worker fetches from LockQueue: its jobs are due when a consumer's lock ends (see package pull), and a
// statement ends many locks at once. The others are separate so that no kind of job waits for another.
const (
	DeliverQueue   = "deliveries"
	LockQueue      = "locks"
	RouteQueue     = "routes"
	HandshakeQueue = "handshakes"
	ExportQueue    = "exports"
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
