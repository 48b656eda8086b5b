package delivery

import (
	"time"

	"postrider/postgres"
)

// LookBackSlowerThan sets from which duration a search for earlier deliveries of a batch counts as slow. It is for tests,
// before Run.
func (l *Loader) LookBackSlowerThan(d time.Duration) { l.cutters.slow = d }

// WaitingCutters is the number of batch cutters of an event subscription that wait for their turn. It is for tests.
func (l *Loader) WaitingCutters(subscription int64) int {
	c := l.cutters.of(subscription)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// DeliveryStatements are the statements whose plans are kept, for tests.
func DeliveryStatements() map[string]postgres.KeptStatement {
	return map[string]postgres.KeptStatement{
		"bind": {SQL: BindStatement, Settings: postgres.KeepPlan}, "load": {SQL: loadStatement, Settings: postgres.KeepPlan}, "record": {SQL: recordStatement, Settings: postgres.KeepPlan},
		"record ends": {SQL: recordEndsStatement, Settings: postgres.KeepPlan}, "batch": {SQL: batchStatement, Settings: postgres.KeepPlan},
		"members": {SQL: membersStatement, Settings: postgres.KeepPlan},
	}
}

// EndsSQL is the part of the recorder's statement that ends deliveries, for tests.
func EndsSQL() string { return sqlFile("ends.sql") }
