package store

import (
	"context"
	"fmt"

	"postrider/policy"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// queueNotices notes, in the transaction that records a group, whom of it T3 has dead-lettered or dropped. It is a statement of its own
// after T3's, which is long enough for those who tell nobody.
func (r *recorder[T]) queueNotices(batch *pgx.Batch, group []T) {
	const note = `SELECT postrider_internal.note_ends($1::bigint[] || ARRAY (SELECT delivery_id FROM postrider_internal.batch_members WHERE batch_id = ANY ($2::bigint[])))`
	catalogue := r.store.Catalogue()
	if !catalogue.someoneIsTold() {
		return
	}
	deliveries, batches := []int64{}, []int64{}
	for _, req := range group {
		if catalogue.tellsOf(req.single().SubscriptionID) {
			deliveries, batches = req.failures(deliveries, batches)
		}
	}
	if len(deliveries)+len(batches) > 0 {
		batch.Queue(note, deliveries, batches)
	}
}

func fails(v policy.VerdictAction) bool { return v == policy.DeadLetter || v == policy.Drop }

func (q *recordRequest) failures(deliveries, batches []int64) (more, moreBatches []int64) {
	if fails(q.Verdict.Action) {
		deliveries = append(deliveries, q.DeliveryID)
	}
	return deliveries, batches
}

func (q *batchRequest) failures(deliveries, batches []int64) (more, moreBatches []int64) {
	if fails(q.Verdict.Action) {
		return deliveries, append(batches, q.BatchID) // with those that have a fate of their own
	}
	for _, fate := range q.fates {
		if fails(fate.Verdict.Action) {
			deliveries = append(deliveries, fate.DeliveryID)
		}
	}
	return deliveries, batches
}

// noteExportsGivenUp notes, in the transaction that marks them so, that these dead letters will not be written outside any more.
func noteExportsGivenUp(ctx context.Context, tx pgx.Tx, letters []uuid.UUID, r *ExportResult) error {
	reason := r.Error
	if reason == "" { // the file was written, without these
		reason = r.Unfit[letters[0]]
	}
	if _, err := tx.Exec(ctx, "SELECT postrider_internal.note_exports_given_up($1::uuid[], $2)", letters, nullText(reason).String); err != nil {
		return fmt.Errorf("note that an export was given up: %w", err)
	}
	return nil
}
