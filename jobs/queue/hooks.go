package queue

import (
	"slices"

	"postrider/internal/postgres"
)

// PromoteStatement is that of JobRows.Promote, for tests.
func PromoteStatement() string { return promoteStatement }

// Waiting returns the jobs that publishes gave to free workers, and the number of workers reserved. It is for tests.
func (h *Handoff) Waiting() (jobs []*Work, reserved int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.waiting), h.reserved
}

// QueueStatements are the statements whose plans are kept, for tests.
func QueueStatements() map[string]postgres.KeptStatement {
	return map[string]postgres.KeptStatement{
		"fetch": {SQL: fetchStatement, Settings: inOrder}, "end jobs": {SQL: endJobStatement, Settings: postgres.KeepPlan},
	}
}

// IgnoreResponses makes responses close no endpoint. It is for tests of retry schedules, before a start.
func (c *ClosedEndpoints) IgnoreResponses() { c.ignores = true }
