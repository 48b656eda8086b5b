package export

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
	"postrider/policy"
	"postrider/postgres"
)

// ExportResult is what one try to write an export came to.
type ExportResult struct {
	Job    int64
	Export *Export
	// Location is the URL of the file that was written; "" = nothing was.
	Location string
	// Error is why nothing was written. GiveUp: trying again is of no use.
	Error  string
	GiveUp bool
	// Unfit are those that could not be written although the file was, with the reason.
	Unfit map[uuid.UUID]string
}

// The job row is the token, as everywhere: only the statement that deletes it marks the dead letters, and ends the export or gives it a
// new job. A dead letter that was purged meanwhile is in none of the counts.
//
// Dead letters whose time to be tried is over are given up, so each is tried once at least, and once more at the end of that time.
var recordExportStatement = `
WITH gone AS (
    DELETE FROM postrider_internal.river_job WHERE id = @job AND kind = 'export' AND EXISTS (SELECT FROM postrider_internal.exports WHERE id = @id AND created_at = @created) RETURNING id
), standing AS MATERIALIZED (
    SELECT x.id FROM postrider_internal.exports x JOIN gone ON gone.id = x.job_id WHERE x.id = @id FOR UPDATE OF x
), found AS MATERIALIZED (
    SELECT l.id, l.export_give_up_at, u.error,
           CASE WHEN u.id IS NOT NULL THEN 'given_up' WHEN @location <> '' THEN 'exported' WHEN @give_up OR l.export_give_up_at <= now() THEN 'given_up' ELSE 'pending' END AS state
      FROM standing JOIN postrider_internal.dead_letters l ON l.export_id = standing.id LEFT JOIN unnest(@unfit::uuid[], @unfit_errors::text[]) AS u(id, error) ON u.id = l.id
     ORDER BY l.id FOR UPDATE OF l
), marked AS (
    UPDATE postrider_internal.dead_letters l
       SET export_state = f.state, export_attempts = l.export_attempts + 1, export_id = CASE f.state WHEN 'pending' THEN l.export_id END,
           export_error = coalesce(f.error, nullif(@error, '')), exported_at = CASE f.state WHEN 'exported' THEN now() END,
           export_location = CASE f.state WHEN 'exported' THEN @location END
      FROM found f WHERE l.id = f.id
), again AS (
    UPDATE postrider_internal.exports x SET tries = x.tries + 1, job_id = nextval('postrider_internal.river_job_id_seq')
      FROM standing WHERE x.id = standing.id AND EXISTS (SELECT FROM found WHERE state = 'pending') RETURNING x.id, x.job_id
), job AS (` + queue.Exports.Jobs("1", "least(now() + @pause::interval, (SELECT min(export_give_up_at) FROM found WHERE state = 'pending'))", "again") + `
), over AS (
    DELETE FROM postrider_internal.exports x USING standing WHERE x.id = standing.id AND NOT EXISTS (SELECT FROM found WHERE state = 'pending')
)
SELECT count(*) FILTER (WHERE state = 'exported'), count(*) FILTER (WHERE state = 'given_up'), count(*) FILTER (WHERE state = 'pending'),
       coalesce(array_agg(id ORDER BY id) FILTER (WHERE state = 'given_up'), '{}') FROM found`

// Exported is what became of an export's dead letters.
type Exported struct{ Written, GivenUp, Pending int }

// RecordExport writes down what a try came to. A job that is nobody's any more changes nothing, and that is no error.
func (e *Exports) RecordExport(ctx context.Context, r *ExportResult) (done Exported, err error) {
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		done, err = e.recordExport(ctx, tx, r)
		return err
	})
	if err != nil {
		return Exported{}, fmt.Errorf("record an export: %w", err)
	}
	e.exported.Add(int64(done.Written))
	e.abandoned.Add(int64(done.GivenUp))
	return done, nil
}

func (e *Exports) recordExport(ctx context.Context, tx pgx.Tx, r *ExportResult) (done Exported, err error) {
	unfit, whys := make([][16]byte, 0, len(r.Unfit)), make([]string, 0, len(r.Unfit))
	for id, why := range r.Unfit {
		unfit, whys = append(unfit, id), append(whys, postgres.NullText(why).String)
	}
	var givenUp []uuid.UUID
	err = tx.QueryRow(ctx, recordExportStatement, pgx.NamedArgs{
		"job": r.Job, "id": r.Export.ID, "created": r.Export.CreatedAt, "location": r.Location, "error": postgres.NullText(r.Error).String, "give_up": r.GiveUp, "unfit": unfit, "unfit_errors": whys,
		"pause": policy.ExportPause(r.Export.Tries + 1),
	}).Scan(&done.Written, &done.GivenUp, &done.Pending, &givenUp)
	if err != nil || done.GivenUp == 0 {
		return done, err
	}
	return done, noteExportsGivenUp(ctx, tx, givenUp, r)
}

// noteExportsGivenUp notes, in the transaction that marks them so, that these dead letters will not be written outside any more.
func noteExportsGivenUp(ctx context.Context, tx pgx.Tx, letters []uuid.UUID, r *ExportResult) error {
	reason := r.Error
	if reason == "" { // the file was written, without these
		reason = r.Unfit[letters[0]]
	}
	const note = "SELECT postrider_internal.note_exports_given_up($1::uuid[], $2)"
	if _, err := tx.Exec(ctx, note, letters, postgres.NullText(reason).String); err != nil {
		return fmt.Errorf("note that an export was given up: %w", err)
	}
	return nil
}
