package export

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/policy"
	"postrider/postgres"
)

// ExportResult is the result of one try to write an export.
type ExportResult struct {
	Job    int64
	Export *Export
	// Location is the URL of the file that was written; "" for none.
	Location string
	// Error is why nothing was written. GiveUp: another try is of no use.
	Error  string
	GiveUp bool
	// Unfit has the dead letters that could not be written although the file was, with the reasons.
	Unfit map[uuid.UUID]string
}

var recordStatement = sqlFile("record.sql")

// Exported has the numbers of an export's dead letters, by what became of them.
type Exported struct{ Written, Abandoned, Pending int }

// RecordExport records the result of a try. It is no error that a job is not the export's any more; then nothing
// changes.
func (e *Exports) RecordExport(ctx context.Context, r *ExportResult) (done Exported, err error) {
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		done, err = e.recordExport(ctx, tx, r)
		return err
	})
	if err != nil {
		return Exported{}, fmt.Errorf("record an export: %w", err)
	}
	e.exported.Add(int64(done.Written))
	e.abandoned.Add(int64(done.Abandoned))
	return done, nil
}

func (e *Exports) recordExport(ctx context.Context, tx pgx.Tx, r *ExportResult) (done Exported, err error) {
	unfit, whys := make([][16]byte, 0, len(r.Unfit)), make([]string, 0, len(r.Unfit))
	for id, why := range r.Unfit {
		unfit, whys = append(unfit, id), append(whys, postgres.NullText(why).String)
	}
	var abandoned []uuid.UUID
	err = tx.QueryRow(ctx, recordStatement, pgx.NamedArgs{
		"job": r.Job, "id": r.Export.ID, "created": r.Export.CreatedAt, "location": r.Location,
		"error": postgres.NullText(r.Error).String, "give_up": r.GiveUp, "unfit": unfit, "unfit_errors": whys,
		"pause": policy.ExportPause(r.Export.Tries + 1),
	}).Scan(&done.Written, &done.Abandoned, &done.Pending, &abandoned)
	if err != nil || done.Abandoned == 0 {
		return done, err
	}
	return done, noteExportsAbandoned(ctx, tx, abandoned, r)
}

// noteExportsAbandoned inserts a notice, in the transaction that marks them so, that these dead letters will not be
// exported any more.
func noteExportsAbandoned(ctx context.Context, tx pgx.Tx, letters []uuid.UUID, r *ExportResult) error {
	reason := r.Error
	if reason == "" { // the file was written, without these
		reason = r.Unfit[letters[0]]
	}
	const note = "SELECT postrider_internal.note_exports_abandoned($1::uuid[], $2)"
	if _, err := tx.Exec(ctx, note, letters, postgres.NullText(reason).String); err != nil {
		return fmt.Errorf("note that an export was given up: %w", err)
	}
	return nil
}
