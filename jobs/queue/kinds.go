package queue

// The kinds of jobs, and River's queues that they are in.
const (
	// DeliverKind is the kind of a delivery attempt's job.
	DeliverKind = "deliver"
	// BatchKind is the kind of the jobs that send batches. One whose arguments name no batch is a batch cutter: it cuts
	// the next batch from the open deliveries, and then is that batch's job.
	BatchKind = "batch"
	// DeliverQueue is the one queue of all attempts: a queue per event subscription would cost half a core at a thousand
	// of them.
	DeliverQueue = "deliveries"

	// RouteKind is the kind of the jobs that create the deliveries of a route, see docs/internals/delivery.md.
	RouteKind = "route"
	// RouteQueue is a separate queue: behind the deliveries an event would wait for other events' endpoints before it has
	// deliveries.
	RouteQueue = "routes"

	// HandshakeKind is the kind of the jobs that make one request of a handshake, see docs/guides/receive.md.
	HandshakeKind = "handshake"
	// HandshakeQueue is a separate queue: a handshake does not wait for deliveries, and handshakes of endpoints that do
	// not respond delay no delivery.
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

// The kinds of jobs that this program can replace. During a rolling upgrade the queue may have others, of a newer
// version: what their arguments mean, and which row has to follow when their id changes, is unknown here. Nodes of that
// version handle them; this one leaves them alone.
var (
	deliveryKinds = []string{DeliverKind, BatchKind}
	// ownedKinds have a row each that names the job: a route, a handshake, an export or an operation. Row and job change
	// in one transaction, and only the statement that deletes the job changes the row. What comes next is another job.
	ownedKinds = []string{RouteKind, HandshakeKind, ExportKind, OperationKind}
	// deferredKinds lack routes: a step of a route may run again under its row, because only one of its runs makes it.
	deferredKinds = []string{HandshakeKind, ExportKind, OperationKind}
)
