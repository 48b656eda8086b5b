package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
)

const (
	proofText   = "postrider"
	proofColumn = "encryption_keys.proof"
	macColumn   = "encryption_keys.mac_sealed"
)

// sealedBy is a key that has sealed values in this database.
type sealedBy struct {
	KeyID   string
	Proof   []byte
	Mac     []byte `db:"mac_sealed"`
	Retired bool
}

// CheckKey fails if a value in this database may be sealed with a key that the sealer does not know. Else it stores a
// proof of the sealer's key, and gives the sealer the key of this database's hashes. A node with the wrong key must
// stop at its start, not at its first delivery.
func CheckKey(ctx context.Context, pool *pgxpool.Pool, s *postgres.Sealer) error {
	const query = `SELECT key_id, proof, mac_sealed, retired_at IS NOT NULL AS retired
		FROM postrider_internal.encryption_keys ORDER BY created_at, key_id`
	const lock = "LOCK TABLE postrider_internal.encryption_keys IN SHARE ROW EXCLUSIVE MODE"
	const insert = `INSERT INTO postrider_internal.encryption_keys (key_id, proof, mac_sealed)
		VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	// The lock: of two first nodes with different keys, one must fail.
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := postgres.Exec(ctx, tx, "lock the encryption keys' proofs", lock); err != nil {
			return err
		}
		keys, err := postgres.Rows[sealedBy](ctx, tx, query)
		if err != nil {
			return postgres.ReadError("the encryption keys' proofs", err)
		}
		if err := accept(s, keys); err != nil {
			return err
		}
		proof, mac := s.Seal(proofColumn, proofText), s.Seal(macColumn, s.MacKey())
		return postgres.Exec(ctx, tx, "store the encryption key's proof", insert, s.KeyID(), proof, mac)
	})
}

// accept checks the keys of a database, and adopts the key of its hashes.
func accept(s *postgres.Sealer, keys []sealedBy) error {
	own := s.KeyIDs()
	known := slices.ContainsFunc(keys, func(k sealedBy) bool { return !k.Retired && slices.Contains(own, k.KeyID) })
	for _, k := range keys {
		switch {
		case k.Retired && k.KeyID == s.KeyID():
			return fmt.Errorf("encryption key %s is retired: "+
				"set POSTRIDER_ENCRYPTION_KEY to the key that replaced it", k.KeyID)
		case k.Retired:
			continue
		case !known:
			return fmt.Errorf("this database was set up with another encryption key than %s: "+
				"set the key it was set up with", s.KeyID())
		case !slices.Contains(own, k.KeyID):
			return fmt.Errorf("something may still be sealed with encryption key %s: "+
				"name it in POSTRIDER_PREVIOUS_ENCRYPTION_KEYS until `postrider keys rotate` has finished", k.KeyID)
		}
		if _, err := s.Open(proofColumn, k.Proof); err != nil {
			return err
		}
		mac, err := s.Open(macColumn, k.Mac)
		if err != nil {
			return err
		}
		if err := s.UseMac(mac); err != nil {
			return fmt.Errorf("open sealed column %s: %w", macColumn, err)
		}
	}
	return nil
}

// ErrNothingSealed means: the database has no secret yet to try a key on.
var ErrNothingSealed = errors.New("nothing is sealed in this database yet")

// TryKey opens the proof of this database's key and, if there is one, the endpoint of an event subscription. Unlike
// CheckKey it writes nothing. It returns ErrNothingSealed if there is neither.
func TryKey(ctx context.Context, pool *pgxpool.Pool, s *postgres.Sealer) error {
	var proofs, endpoint []byte
	const query = `SELECT
		(SELECT proof FROM postrider_internal.encryption_keys ORDER BY key_id = $1 DESC LIMIT 1),
		(SELECT secrets_sealed FROM postrider_internal.event_subscriptions WHERE deleted_at IS NULL LIMIT 1)`
	err := pool.QueryRow(ctx, query, s.KeyID()).Scan(&proofs, &endpoint)
	if err != nil {
		return fmt.Errorf("read what is sealed: %w", err)
	}
	if proofs == nil && endpoint == nil {
		return ErrNothingSealed
	}
	if proofs != nil {
		if _, err = s.Open(proofColumn, proofs); err != nil {
			return err
		}
	}
	if endpoint != nil {
		_, err = s.Open(secretsColumn, endpoint)
	}
	return err
}
