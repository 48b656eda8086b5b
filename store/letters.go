package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LetterFilter says which dead letters are read. What is empty does not count.
type LetterFilter struct {
	Topic, Subscription, Reason string
	// From is included, Until is not. Without Until those are read that there are when the reading begins.
	From, Until time.Time
}

// letterStep is how many dead letters one statement reads: a reader that takes its time keeps no snapshot for long.
const letterStep = 500

const lettersAfter = `
WHERE (l.dead_lettered_at, l.id) > ($1, $2) AND l.dead_lettered_at < $3
  AND ($4 = '' OR l.topic = $4) AND ($5 = '' OR l.subscription = $5) AND ($6 = '' OR l.reason = $6) AND l.erased_at IS NULL
ORDER BY l.dead_lettered_at, l.id LIMIT $7`

// EachLetter calls do for dead letters, the oldest first, one by one, without those that were erased: no more than one is in memory. It ends with do's error.
func EachLetter(ctx context.Context, pool *pgxpool.Pool, f LetterFilter, do func(*Letter) error) error {
	if f.Until.IsZero() {
		if err := pool.QueryRow(ctx, "SELECT now()").Scan(&f.Until); err != nil {
			return fmt.Errorf("read the database's time: %w", err)
		}
	}
	at, id := f.From, uuid.UUID{}
	for read := letterStep; read == letterStep; {
		read = 0
		args := []any{at, [16]byte(id), f.Until, f.Topic, f.Subscription, f.Reason, letterStep}
		err := eachLetter(ctx, pool, lettersAfter, args, func(l *Letter) error {
			read, at, id = read+1, l.DeadLetteredAt, l.ID
			return do(l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
