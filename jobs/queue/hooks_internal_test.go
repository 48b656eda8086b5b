package queue

import "postrider/internal/postgres"

// PromoteStatement is that of JobRows.Promote, for tests.
func PromoteStatement() string { return promoteStatement }

// QueueStatements are the statements whose plans are kept, for tests.
func QueueStatements() map[string]postgres.KeptStatement {
	return map[string]postgres.KeptStatement{
		"fetch": {SQL: fetchStatement, Settings: inOrder}, "end jobs": {SQL: endJobStatement, Settings: postgres.KeepPlan},
	}
}
