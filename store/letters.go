package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// LetterFilter says which dead letters are read. What is empty does not count.
type LetterFilter struct {
	Topic, Subscription, Reason string
	// After continues a reading behind this dead letter.
	After DeadLetterPlace
	// From is included, Until is not.
	From, Until time.Time
}

const lettersAfter = `
WHERE (l.dead_lettered_at, l.id) > ($1, $2) AND l.dead_lettered_at < $3
  AND ($4 = '' OR l.topic = $4) AND ($5 = '' OR l.subscription = $5) AND ($6 = '' OR l.reason = $6) AND l.erased_at IS NULL
ORDER BY l.dead_lettered_at, l.id LIMIT $7`

// EachLetter calls do for dead letters, at most limit, the oldest first, one by one, without those that were erased: no more than one is in
// memory. It ends with do's error.
func EachLetter(ctx context.Context, pool *pgxpool.Pool, f LetterFilter, limit int, do func(*Letter) error) error {
	if f.After.DeadLetteredAt.Before(f.From) {
		f.After = DeadLetterPlace{DeadLetteredAt: f.From}
	}
	args := []any{f.After.DeadLetteredAt, [16]byte(f.After.DeadLetterID), f.Until, f.Topic, f.Subscription, f.Reason, limit}
	return eachLetter(ctx, pool, lettersAfter, args, do)
}
