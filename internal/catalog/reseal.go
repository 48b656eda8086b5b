package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

// sealedTables are all sealed columns, except the keys' own proofs.
var sealedTables = []sealedTable{
	{"topics", []string{"key1_sealed", "key2_sealed"}},
	{"event_subscriptions", []string{"secrets_sealed", "signing_sealed"}},
	{"handshakes", []string{"secrets_sealed", "code_sealed"}},
	{"query_logins", []string{"password_sealed"}},
}

type sealedTable struct {
	name    string
	columns []string
}

// resealStep is how many rows are locked at a time, for some milliseconds.
const resealStep = 100

// retireTries is how often values are resealed that nodes have sealed with another key in the meantime.
const retireTries = 20

// errSealedMeanwhile: a node has sealed a value with another key since the last pass.
var errSealedMeanwhile = errors.New("something was sealed with another key meanwhile")

// RotateKeys reseals every value that another key has sealed, and retires the other keys: nothing may be sealed with
// them, and no node needs them. Deliveries go on. It calls progress after each step, and can be interrupted and
// repeated. Every node must know this sealer's key before, see docs/operate/configure.md.
func RotateKeys(
	ctx context.Context, pool *pgxpool.Pool, sealer *postgres.Sealer, progress func(table string, rows int),
) (retired []string, err error) {
	for range retireTries {
		for _, table := range sealedTables {
			if err := reseal(ctx, pool, sealer, table, progress); err != nil {
				return nil, err
			}
		}
		if retired, err = retire(ctx, pool, sealer); !errors.Is(err, errSealedMeanwhile) {
			return retired, err
		}
	}
	return nil, fmt.Errorf("retire the other keys: %w again and again: a node still seals with it", errSealedMeanwhile)
}

// reseal goes through a table by id.
func reseal(
	ctx context.Context, pool *pgxpool.Pool, sealer *postgres.Sealer, table sealedTable, progress func(string, int),
) error {
	for after, more := int64(0), true; more; {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// The values stay the same: no publisher needs to filter again, and no etag changes.
			if _, err := tx.Exec(ctx, "SET LOCAL postrider.resealing = 'on'"); err != nil {
				return err
			}
			last, rows, err := resealRows(ctx, tx, sealer, table, after)
			if rows > 0 {
				progress(table.name, rows)
			}
			after, more = last, rows == resealStep
			return err
		})
		if err != nil {
			return fmt.Errorf("seal %s anew: %w", table.name, err)
		}
	}
	return nil
}

// resealRows makes one step after a row's id, and returns the last row's.
func resealRows(
	ctx context.Context, tx pgx.Tx, sealer *postgres.Sealer, table sealedTable, after int64,
) (last int64, n int, err error) {
	query := fmt.Sprintf(`SELECT id, ARRAY[%s] AS values FROM postrider_internal.%s WHERE id > $1 AND (%s)
		ORDER BY id LIMIT %d FOR NO KEY UPDATE`,
		strings.Join(table.columns, ", "), table.name, table.sealedByOthers("$2"), resealStep)
	type row struct {
		ID     int64
		Values [][]byte
	}
	list, err := postgres.Rows[row](ctx, tx, query, after, sealer.KeyID())
	if err != nil {
		return after, 0, err
	}
	batch := &pgx.Batch{}
	for _, r := range list {
		for i, sealed := range r.Values {
			if sealed == nil {
				continue
			}
			plain, err := sealer.Open(table.name+"."+table.columns[i], sealed)
			if err != nil {
				return after, 0, err
			}
			r.Values[i] = sealer.Seal(table.name+"."+table.columns[i], plain)
		}
		batch.Queue(table.update(), r.ID, r.Values)
		after = r.ID
	}
	return after, len(list), tx.SendBatch(ctx, batch).Close()
}

// update is the statement that replaces the values of a row.
func (t sealedTable) update() string {
	set := make([]string, len(t.columns))
	for i, column := range t.columns {
		set[i] = fmt.Sprintf("%s = ($2::bytea[])[%d]", column, i+1)
	}
	return fmt.Sprintf("UPDATE postrider_internal.%s SET %s WHERE id = $1", t.name, strings.Join(set, ", "))
}

// sealedByOthers is the condition that something in a row was sealed with another key than this one: its id is bytes 2
// to 9.
func (t sealedTable) sealedByOthers(key string) string {
	var conditions []string
	for _, column := range t.columns {
		conditions = append(conditions,
			fmt.Sprintf("substr(%s, 2, %d) <> decode(%s, 'hex')", column, postgres.KeyIDBytes, key))
	}
	return strings.Join(conditions, " OR ")
}

// retire retires the other keys. A transaction that seals with one of them has its row locked, so that the check after
// this update sees what it sealed; a later one is rejected.
func retire(ctx context.Context, pool *pgxpool.Pool, sealer *postgres.Sealer) (retired []string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		const others = `UPDATE postrider_internal.encryption_keys SET retired_at = now()
			WHERE key_id <> $1 AND retired_at IS NULL RETURNING key_id`
		if retired, err = postgres.Values[string](ctx, tx, others, sealer.KeyID()); err != nil {
			return err
		}
		for _, table := range sealedTables {
			var left bool
			condition := table.sealedByOthers("$1")
			query := fmt.Sprintf("SELECT EXISTS (SELECT FROM postrider_internal.%s WHERE %s)", table.name, condition)
			if err := tx.QueryRow(ctx, query, sealer.KeyID()).Scan(&left); err != nil {
				return err
			}
			if left {
				return errSealedMeanwhile
			}
		}
		details := map[string]any{"retired": retired, "key": sealer.KeyID()}
		return access.Audit(ctx, tx, access.AuditEntry{Action: access.AuditKeysRetired, Details: details})
	})
	if err != nil {
		return nil, fmt.Errorf("retire the other encryption keys: %w", err)
	}
	return retired, nil
}
