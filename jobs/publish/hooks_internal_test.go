package publish

import "postrider/internal/postgres"

// PublishStatements are the statements whose plans are kept, for tests.
func PublishStatements() map[string]postgres.KeptStatement {
	return map[string]postgres.KeptStatement{
		"publish":         {SQL: publishStatement, Settings: postgres.KeepPlan},
		"plain publish":   {SQL: plainPublishStatement, Settings: postgres.KeepPlan},
		"store and route": {SQL: storeRouteStatement, Settings: postgres.KeepPlan},
	}
}

// LimitSteps bounds the steps of routes by deliveries and by bytes of bodies; 0 leaves a limit as it is. It is for
// tests, before Run.
func (p *Publisher) LimitSteps(deliveries, bytes int) {
	if deliveries > 0 {
		p.stepLimit = deliveries
	}
	if bytes > 0 {
		p.stepBytes = bytes
	}
}

// FilterInTransactions makes each transaction filter by the catalog of its snapshot, as publishes do when the catalog
// changes too often. It is for tests, before Run.
func (p *Publisher) FilterInTransactions() { p.optimistic = 0 }
