package jobs

import (
	"context"
	"time"
)

// WrittenOn reports whether retention would wait for an open transaction that may have written to a partition of this
// day. It is for tests.
func (m *Maintenance) WrittenOn(ctx context.Context, table string, day time.Time) (bool, error) {
	return m.written(ctx, dayTable{Name: table, Day: day})
}

// Statements of the sweeper, for tests of their plans.
const (
	SumDeliveriesStatement = sumDeliveriesStatement
	SumJobsStatement       = sumJobsStatement
	MendStatement          = mendStatement
	RemoveStatement        = removeStatement
)
