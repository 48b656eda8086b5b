package query

// Retention is how long finished rows are kept, in whole UTC days before the current one; 0 = forever.
type Retention struct {
	// DeliveredDays is for events, finished deliveries and finished batches. Events with a pending delivery stay.
	DeliveredDays int
	// AttemptsDays is for delivery attempts.
	AttemptsDays int
	// DeadLettersDays is for dead letters.
	DeadLettersDays int
	// CountsDays is for counts by the minute.
	CountsDays int
	// AuditDays is for the audit.
	AuditDays int
	// KeysDays is for API keys that were revoked or have expired. The audit keeps its rows about them.
	KeysDays int
}
