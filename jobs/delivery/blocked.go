package delivery

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// blockedPause is the time after which results whose rows another transaction has locked are tried again.
const blockedPause = 250 * time.Millisecond

// setBlockedAside returns the results of a group whose rows can be locked now. The others go back into the queue after
// blockedPause: a user who cancels a delivery in psql holds its rows until the transaction ends. Their attempts count
// as in progress until then, and everything else is recorded meanwhile. If that cannot be checked, it returns the
// group.
//
// While any result is blocked, each group is checked before it is recorded: a transaction that holds one row may hold
// more, and each that is only found by waiting for it costs half a second.
func (r *Recorder) setBlockedAside(group []*recording) (free []*recording) {
	free, blocked, err := r.divide(group)
	if err != nil {
		return group
	}
	news := 0
	for _, req := range blocked {
		if !r.blocked[req] {
			r.blocked[req] = true
			r.block(req, 1)
			news++
		}
	}
	if news > 0 {
		first := blocked[0]
		r.Log.Info("an open transaction holds rows of some results; they are recorded when it has ended",
			"results", news, "delivery", first.DeliveryID, "batch", first.BatchID, "subscription", first.SubscriptionID)
	}
	if len(blocked) > 0 {
		time.AfterFunc(blockedPause, func() { r.queue.Add(blocked...) })
	}
	return free
}

// block reports a blocked result, or one that is blocked no more, to the gate: it occupies a worker.
func (r *Recorder) block(req *recording, n int) {
	if r.Gate != nil {
		r.Gate.Block(req.SubscriptionID, n)
	}
}

// divide divides a group into results whose rows can be locked now, and results whose rows another transaction holds.
func (r *Recorder) divide(group []*recording) (free, blocked []*recording, err error) {
	var jobs, deliveries, batches []int64
	rests := make([][]byte, len(group))
	for i, req := range group {
		if jobs = append(jobs, req.JobID); req.BatchID != 0 {
			batches = append(batches, req.BatchID)
		} else {
			deliveries = append(deliveries, req.DeliveryID)
		}
		if e := r.evidenceOf(&req.Result); e != nil {
			rests[i] = []byte(e.Key)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	var keys [][]byte
	row := r.DB.QueryRow(ctx, blockedStatement, jobs, deliveries, batches, rests)
	if err := row.Scan(&jobs, &deliveries, &batches, &keys); err != nil {
		return nil, nil, fmt.Errorf("check which rows are locked: %w", err)
	}
	for i, req := range group {
		owners := deliveries
		if req.BatchID != 0 {
			owners = batches
		}
		if slices.Contains(jobs, req.JobID) || slices.Contains(owners, req.owner()) ||
			slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, rests[i]) }) {
			blocked = append(blocked, req)
		} else {
			free = append(free, req)
		}
	}
	return free, blocked, nil
}

var blockedStatement = sqlFile("blocked.sql")
