package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// What was set aside is tried again after as long, and after longer and longer while nothing of it is free.
	asideMinPause = 100 * time.Millisecond
	asideMaxPause = time.Second
)

// aside are the results that wait for somebody's open transaction: a person who cancels a delivery in psql has its job's row until the
// person commits. Everything else that the node has to record goes on meanwhile; these are tried beside it. Their attempts count as under
// way until then.
type aside[T recordable] struct {
	mu      sync.Mutex
	waiting []T
	trying  int
	wake    chan struct{}
}

// any reports whether something is aside. Then groups are looked through before they are recorded: who has one row may well have more,
// and each that is only found by waiting for it costs half a second.
func (a *aside[T]) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)+a.trying > 0
}

func (a *aside[T]) add(requests []T) {
	a.mu.Lock()
	a.waiting = append(a.waiting, requests...)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take takes all of them; they stay aside until back is called with those that still wait.
func (a *aside[T]) take() []T {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.waiting
	a.waiting, a.trying = nil, len(taken)
	return taken
}

func (a *aside[T]) back(requests []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting, a.trying = append(a.waiting, requests...), 0
}

// lockedStatement says which of the jobs, deliveries, batches and probations somebody else has locked: those that are there and cannot be had at
// this moment. It gives back at once what it can have.
const lockedStatement = `
WITH jobs AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), deliveries AS MATERIALIZED (
    SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), batches AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE id = ANY ($3::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), rests AS MATERIALIZED (
    SELECT rest_key FROM postrider_internal.probations WHERE rest_key = ANY ($4::bytea[]) ORDER BY rest_key FOR UPDATE SKIP LOCKED
)
SELECT ARRAY (SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) EXCEPT SELECT id FROM jobs),
       ARRAY (SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2::bigint[]) EXCEPT SELECT id FROM deliveries),
       ARRAY (SELECT id FROM postrider_internal.batches WHERE id = ANY ($3::bigint[]) EXCEPT SELECT id FROM batches),
       ARRAY (SELECT rest_key FROM postrider_internal.probations WHERE rest_key = ANY ($4::bytea[]) EXCEPT SELECT rest_key FROM rests)`

// part divides a group into those whose rows can be had and those that somebody else has.
func (r *recorder[T]) part(ctx context.Context, group []T) (free, locked []T, err error) {
	var jobs, deliveries, batches []int64
	rests := make([][]byte, len(group))
	for i, req := range group {
		q := req.single()
		if jobs = append(jobs, q.JobID); q.BatchID != 0 {
			batches = append(batches, q.BatchID)
		} else {
			deliveries = append(deliveries, q.DeliveryID)
		}
		if e := r.store.evidenceOf(&q.Result); e != nil {
			rests[i] = []byte(e.key)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	var keys [][]byte
	if err := r.store.db.QueryRow(ctx, lockedStatement, jobs, deliveries, batches, rests).Scan(&jobs, &deliveries, &batches, &keys); err != nil {
		return nil, nil, fmt.Errorf("look for what is locked: %w", err)
	}
	for i, req := range group {
		q, owners := req.single(), deliveries
		if q.BatchID != 0 {
			owners = batches
		}
		if slices.Contains(jobs, q.JobID) || slices.Contains(owners, q.owner()) || slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, rests[i]) }) {
			locked = append(locked, req)
		} else {
			free = append(free, req)
		}
	}
	return free, locked, nil
}

// setAside puts aside what somebody else has locked, and returns the others; some: there were any. Where that cannot be found out, all are others.
func (r *recorder[T]) setAside(ctx context.Context, group []T) (free []T, some bool) {
	free, locked, err := r.part(ctx, group)
	switch {
	case err != nil:
		return group, false
	case len(locked) > 0:
		first := locked[0].single()
		r.store.log.Info("somebody's open transaction has what results are about; they are recorded when it has ended", "results", len(locked), "delivery", first.DeliveryID, "batch", first.BatchID, "subscription", first.SubscriptionID)
		r.aside.add(locked)
	}
	return free, len(locked) > 0
}

// recordAside records what was set aside, as soon as it can, until ctx ends: then once more. What is left is somebody's who takes up the jobs of
// this node.
func (r *recorder[T]) recordAside(ctx context.Context) {
	for pause := asideMinPause; ctx.Err() == nil; {
		if !r.aside.any() {
			pause = asideMinPause
			select {
			case <-r.aside.wake:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if pause = min(2*pause, asideMaxPause); r.tryAside(ctx) {
			pause = asideMinPause
		}
	}
}

// tryAside records those that are free now, and reports whether there were any.
func (r *recorder[T]) tryAside(ctx context.Context) bool {
	waiting := r.aside.take()
	defer func() { r.aside.back(waiting) }()
	free, locked, err := r.part(ctx, waiting)
	if err != nil || len(free) == 0 {
		return false
	}
	waiting = locked
	for len(free) > 0 {
		fits, n := r.fits(), 0
		for n < len(free) && fits(free[n]) {
			n++
		}
		group := free[:n:n]
		slices.SortFunc(group, byJob)
		if err := isolate(group, r.write, r.blame); err != nil {
			waiting = append(waiting, free...) // somebody has one again; or PostgreSQL is away, which the others find out
			return false
		}
		r.recorded(group)
		free = free[n:]
	}
	return true
}
