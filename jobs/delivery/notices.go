package delivery

import (
	"github.com/jackc/pgx/v5"

	"postrider/policy"
)

// queueNotices notes, in the transaction that records a group, the deliveries that T3 has dead-lettered or dropped, for
// event subscriptions of the system topic. It is a separate statement: most systems have no such event subscription.
func (r *Recorder) queueNotices(batch *pgx.Batch, group []*recording) {
	const note = `SELECT postrider_internal.note_ends($1::bigint[] ||
		ARRAY (SELECT delivery_id FROM postrider_internal.batch_members WHERE batch_id = ANY ($2::bigint[])))`
	catalogue := r.Cache.Snapshot()
	if !catalogue.HasSystemSubscribers() {
		return
	}
	deliveries, batches := []int64{}, []int64{}
	for _, req := range group {
		if catalogue.NotifiesOf(req.SubscriptionID) {
			deliveries, batches = req.failures(deliveries, batches)
		}
	}
	if len(deliveries)+len(batches) > 0 {
		batch.Queue(note, deliveries, batches)
	}
}

func fails(v policy.VerdictAction) bool { return v == policy.DeadLetter || v == policy.Drop }

// failures appends the deliveries that the result may dead-letter or drop, or the batch of which it may end all.
func (q *recording) failures(deliveries, batches []int64) (moreDeliveries, moreBatches []int64) {
	switch {
	case fails(q.Verdict.Action) && q.BatchID != 0:
		return deliveries, append(batches, q.BatchID)
	case fails(q.Verdict.Action):
		return append(deliveries, q.DeliveryID), batches
	}
	for i := range q.Fates {
		if fails(q.Fates[i].Verdict.Action) {
			deliveries = append(deliveries, q.Fates[i].DeliveryID)
		}
	}
	return deliveries, batches
}
