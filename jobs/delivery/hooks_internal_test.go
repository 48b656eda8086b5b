package delivery

import (
	"time"

	"postrider/internal/postgres"
)

// SearchSlowerThan sets from which duration a search for earlier deliveries of a batch counts as slow. It is for
// tests, before Run.
func (l *Loader) SearchSlowerThan(d time.Duration) { l.cuts.slow = d }

// WaitingCutters is the number of batch cutters of an event subscription that wait. It is for tests.
func (l *Loader) WaitingCutters(subscription int64) int {
	c := l.cuts.of(subscription)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// LimitedStatement is that of Releaser.RefillLimited, for tests.
func LimitedStatement() string { return limitedStatement }

// DeliveryStatements are the statements whose plans are kept, for tests.
func DeliveryStatements() map[string]postgres.KeptStatement {
	statements := map[string]postgres.KeptStatement{}
	for name, sql := range map[string]string{
		"bind": bindStatement, "load": loadStatement, "record": recordStatement, "record ends": recordEndsStatement,
		"record whole": recordWholeStatement, "batch": batchStatement, "members": membersStatement,
	} {
		statements[name] = postgres.KeptStatement{SQL: sql, Settings: postgres.KeepPlan}
	}
	return statements
}
