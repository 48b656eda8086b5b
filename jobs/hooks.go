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

// SweepStatements are the statements of the sweeper that read all rows in steps, for tests of their plans.
func SweepStatements() map[string]string {
	statements := map[string]string{}
	for _, r := range repairs {
		if r.byID {
			statements[r.name] = r.statement
		}
	}
	return statements
}
