package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// mendOwned gives new jobs to unfinished rows without a live job. One statement sees one snapshot, so such a row is
// inconsistent. A row that another transaction changes meanwhile is left to the next pass.
func (m *Maintenance) mendOwned(ctx context.Context, o *queue.Owner) (n int, err error) {
	statement := o.SQL(`
WITH broken AS MATERIALIZED (
    SELECT o.id, o.job_id FROM {table} o
     WHERE {unfinished} AND o.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = o.job_id AND j.kind = '{kind}' AND j.finalized_at IS NULL)
     ORDER BY o.id LIMIT $1
), free AS (
    SELECT o.id FROM {table} o JOIN broken ON broken.id = o.id
     WHERE o.job_id IS NOT DISTINCT FROM broken.job_id ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), followed AS (
    UPDATE {table} o SET job_id = nextval('postrider_internal.river_job_id_seq') FROM free WHERE o.id = free.id RETURNING o.id, o.job_id
), jobs AS (` + o.Jobs("{mended}", "now()", "followed") + `
)
SELECT count(*) FROM followed`)
	err = m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement, sweepStep).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("give %s their job again: %w", o.Table, err)
	}
	if n > 0 {
		m.notifier.PokeQueue(ctx, o.Queue)
	}
	return n, nil
}

// freeLettersStatement makes dead letters available again whose export does not exist.
const freeLettersStatement = `
WITH lost AS (
    SELECT l.id FROM postrider_internal.dead_letters l
     WHERE l.export_id IS NOT NULL AND NOT EXISTS (SELECT FROM postrider_internal.exports x WHERE x.id = l.export_id) ORDER BY l.id LIMIT $1 FOR UPDATE OF l SKIP LOCKED
)
UPDATE postrider_internal.dead_letters l SET export_id = NULL FROM lost WHERE l.id = lost.id`

func (m *Maintenance) freeLetters(ctx context.Context) (n int, err error) {
	err = m.sweepAlone(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, freeLettersStatement, sweepStep)
		n = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("free dead letters of their export: %w", err)
	}
	return n, nil
}
