package store

import (
	"context"
	"fmt"
	"time"
)

// Readiness is what a node needs of the database before it can be of use.
type Readiness struct {
	// KeyKnown: what is sealed there was sealed with this process's key.
	KeyKnown bool
	// PartitionsToday: events of today have a place.
	PartitionsToday bool
	// Silent is how long ago this node wrote its last heartbeat; a node that delivers nothing has none, and Registered is false.
	Silent     time.Duration
	Registered bool
}

const readinessStatement = `
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       coalesce((SELECT postrider_internal.seconds(clock_timestamp() - beat_at)::float8 FROM postrider_internal.nodes WHERE id = $2), -1)`

// Readiness asks the database.
func (s *Store) Readiness(ctx context.Context) (r Readiness, err error) {
	var silent float64
	if err := s.pool.QueryRow(ctx, readinessStatement, s.sealer.KeyID(), s.node).Scan(&r.KeyKnown, &r.PartitionsToday, &silent); err != nil {
		return r, fmt.Errorf("ask the database: %w", err)
	}
	if r.Registered = silent >= 0; r.Registered {
		r.Silent = time.Duration(silent * float64(time.Second))
	}
	return r, nil
}
