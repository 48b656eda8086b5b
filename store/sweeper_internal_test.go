package store

// The sweeper's statements, for the test of their plans.
const (
	SumDeliveriesStatement = sumDeliveriesStatement
	SumJobsStatement       = sumJobsStatement
	MendStatement          = mendStatement
	RemoveStatement        = removeStatement
)
