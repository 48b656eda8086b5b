package query

// Retention is how long what is over is kept, in whole UTC days before the current one; 0 = for ever.
type Retention struct {
	// DeliveredDays is for events, finished deliveries and finished batches. An event that is still owed to somebody
	// stays.
	DeliveredDays int
	// AttemptsDays is for delivery attempts.
	AttemptsDays int
	// DeadLettersDays is for dead letters.
	DeadLettersDays int
	// CountsDays is for what was counted by the minute.
	CountsDays int
	// AuditDays is for the audit.
	AuditDays int
	// KeysDays is for API keys that were revoked or have expired. What the audit says of them stays for as long as the
	// audit does.
	KeysDays int
}
