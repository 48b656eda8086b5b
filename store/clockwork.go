package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// promoteStep bounds one promotion: a burst of due retries is moved in steps, so that no statement runs long. A step that had
// to park some is the last one of its call: parking costs the database 60 microseconds a delivery, and 90,000 retries of one
// endpoint at a stretch would take a core for 5 s.
const promoteStep = 2500

// The condition is the exact beginning of River's fetching index (state, queue, priority, scheduled_at): finding that
// nothing is due costs 0.05 ms beside a million scheduled jobs. River's own scheduler runs on one node, every 5 s, and
// scans (108 ms at the same size).
//
// Retries that become due must not queue up in front of everybody else's: what finds no room goes on hold, and comes back
// in waves. Room is counted in deliveries: a batch takes as much as it has members, and fits where any is left. Only the
// arguments of known kinds are looked into: those of a newer version's jobs may mean anything.
const promoteStatement = `
WITH due AS MATERIALIZED (
    SELECT id, kind, args, CASE WHEN kind IN ` + knownKinds + ` THEN (args ->> 's')::bigint END AS subscription_id,
           CASE WHEN kind = 'deliver' THEN (args ->> 'd')::bigint END AS delivery_id, CASE WHEN kind = 'batch' THEN (args ->> 'b')::bigint END AS batch_id
      FROM postrider_internal.river_job
     WHERE state = 'scheduled' AND queue = 'deliveries' AND priority = 1 AND scheduled_at <= now()
     ORDER BY scheduled_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
), weighed AS MATERIALIZED (
    SELECT due.*, coalesce(b.members, 1) AS members, due.kind <> 'deliver' AND b.id IS NULL AS free
      FROM due LEFT JOIN postrider_internal.batches b ON b.id = due.batch_id AND b.job_id = due.id AND b.id = ANY (ARRAY (SELECT batch_id FROM due))
), placed AS MATERIALIZED (
    SELECT w.*, w.free OR sum(members) OVER (PARTITION BY w.subscription_id ORDER BY w.id) - members < coalesce(r.room, $2) AS fits, coalesce(r.hold, 'admission') AS hold
      FROM weighed w LEFT JOIN unnest($3::bigint[], $4::int[], $5::text[]) AS r(subscription_id, room, hold) ON r.subscription_id = w.subscription_id
), moved AS (
    UPDATE postrider_internal.river_job j SET state = 'available', scheduled_at = least(j.scheduled_at, now()) FROM placed WHERE j.id = placed.id AND placed.fits
), gone AS (
    DELETE FROM postrider_internal.river_job j USING placed WHERE j.id = placed.id AND NOT placed.fits RETURNING j.id
), parked AS (
    UPDATE postrider_internal.deliveries d SET job_id = NULL, hold = p.hold, held_reruns = coalesce((p.args ->> 'r')::int, 0)
      FROM placed p JOIN gone ON gone.id = p.id WHERE d.id = p.delivery_id AND d.job_id = p.id
), parked_batches AS (
    UPDATE postrider_internal.batches b SET job_id = NULL, hold = p.hold, held_reruns = coalesce((p.args ->> 'r')::int, 0)
      FROM placed p JOIN gone ON gone.id = p.id WHERE b.id = p.batch_id AND b.job_id = p.id
)
SELECT coalesce(subscription_id, 0), count(*), coalesce(sum(members) FILTER (WHERE fits), 0) FROM placed GROUP BY 1`

// Two kinds of times are River's own, for jobs that failed or were put off before their attempt began, and made with the
// clock of the process, which may be an hour off. The database's stamp of the fetch bounds the wait of those that are
// retryable; an available job is never meant for more than 5 s ahead.
const wakeStatement = `
WITH due AS (
    SELECT id FROM postrider_internal.river_job
     WHERE state = $1 AND queue = $2 AND priority = 1 AND (%s)
     ORDER BY scheduled_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE postrider_internal.river_job j SET state = 'available', scheduled_at = least(j.scheduled_at, now()) FROM due WHERE j.id = due.id RETURNING j.id
)
SELECT count(*) FROM moved`

var wakeConditions = map[string]string{
	"retryable": "scheduled_at <= now() OR attempted_at < now() - interval '3 minutes'",
	"available": "scheduled_at > now() + interval '10 seconds'",
}

// Room bounds how many due jobs of an event subscription Promote makes available; the others get the hold, "" for admission.
type Room struct {
	SubscriptionID int64
	Jobs           int
	Hold           string
}

// Promote makes the jobs available whose time has come and says how many were due. Where no room is given there is
// DefaultRoom. Every node calls it every 250 ms; nodes skip each other's rows.
func (s *Store) Promote(ctx context.Context, rooms ...Room) (int, error) {
	total, err := s.promoteScheduled(ctx, rooms)
	for _, queue := range []string{DeliverQueue, RouteQueue} {
		if err == nil {
			err = s.wake(ctx, queue, &total)
		}
	}
	if total > 0 {
		s.notifier.poke()
	}
	if err != nil {
		return total, fmt.Errorf("promote due jobs: %w", err)
	}
	return total, nil
}

func (s *Store) wake(ctx context.Context, queue string, total *int) error {
	for state, due := range wakeConditions {
		for moved := promoteStep; moved == promoteStep; *total += moved {
			if err := s.pool.QueryRow(ctx, fmt.Sprintf(wakeStatement, due), state, queue, promoteStep).Scan(&moved); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) promoteScheduled(ctx context.Context, rooms []Room) (total int, err error) {
	left := make(map[int64]Room, len(rooms))
	for _, r := range rooms {
		left[r.SubscriptionID] = r
	}
	for due, fitted := promoteStep, promoteStep; due == promoteStep && fitted == due; total += due {
		due, fitted = 0, 0
		rows, err := s.pool.Query(ctx, promoteStatement, promoteColumns(left)...)
		if err != nil {
			return total, err
		}
		var subscription int64
		var met, fit int
		_, err = pgx.ForEachRow(rows, []any{&subscription, &met, &fit}, func() error {
			r, known := left[subscription]
			if !known {
				r = Room{SubscriptionID: subscription, Jobs: DefaultRoom}
			}
			r.Jobs -= fit
			left[subscription] = r
			s.traffic.addOne(subscription, fit)
			due, fitted = due+met, fitted+fit
			return nil
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func promoteColumns(rooms map[int64]Room) []any {
	var subscriptions []int64
	var jobs []int
	var holds []pgtype.Text
	for _, r := range rooms {
		subscriptions, jobs, holds = append(subscriptions, r.SubscriptionID), append(jobs, max(r.Jobs, 0)), append(holds, nullText(r.Hold))
	}
	return []any{promoteStep, DefaultRoom, subscriptions, jobs, holds}
}

// CleanJobs removes jobs that River finalized an hour ago or longer: those whose delivery had ended or been given to another job
// when their turn came. Everything else is deleted by the statement that records it.
func (s *Store) CleanJobs(ctx context.Context) error {
	const clean = `DELETE FROM postrider_internal.river_job WHERE id IN (
		SELECT id FROM postrider_internal.river_job WHERE state IN ('completed', 'cancelled', 'discarded') AND finalized_at < now() - interval '1 hour' LIMIT $1 FOR UPDATE SKIP LOCKED)`
	for removed := int64(cleanStep); removed == cleanStep; {
		tag, err := s.pool.Exec(ctx, clean, cleanStep)
		if err != nil {
			return fmt.Errorf("remove finalized jobs: %w", err)
		}
		removed = tag.RowsAffected()
	}
	return nil
}

const cleanStep = 10_000

// knownKinds are the kinds of jobs that this program can read and replace, as an SQL list. During a rolling upgrade the
// queue may hold others, of a version that this one knows nothing about: what their arguments mean, and which row has to
// follow when their id changes. Their own version's nodes do all that; here they are not touched.
const knownKinds = "('deliver', 'batch')"

// lockLostStatement finds the running jobs of the lost, and locks them. Rows that are being recorded at this moment are locked
// by others, and skipped.
const lockLostStatement = `
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.queue = 'deliveries' AND j.kind IN ` + knownKinds + ` AND %s ORDER BY j.id FOR UPDATE SKIP LOCKED`

// reclaimStatement replaces those jobs. The replacement is a new row with one rerun more, and the token of the delivery or
// the batch follows in the same statement: whoever ran the old row can record nothing any more. A batch stays as it was cut. A
// pump that has not cut one yet has nothing that could follow.
//
// It is a statement of its own, for it must see the batch that a pump committed just before its row could be locked.
const reclaimStatement = `
WITH lost AS (
    DELETE FROM postrider_internal.river_job j WHERE j.id = ANY ($1::bigint[]) RETURNING j.id, j.kind, j.args
), again AS MATERIALIZED (
    SELECT id AS old_id, nextval('postrider_internal.river_job_id_seq') AS id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           args || jsonb_build_object('r', coalesce((args ->> 'r')::int, 0) + 1) AS args
      FROM lost
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.id, reruns = d.reruns + 1
      FROM again WHERE again.kind = 'deliver' AND d.id = again.delivery_id AND d.job_id = again.old_id RETURNING again.id
), batches AS (
    UPDATE postrider_internal.batches b SET job_id = again.id, reruns = b.reruns + 1
      FROM again WHERE again.kind = 'batch' AND b.id = again.batch_id AND b.job_id = again.old_id RETURNING again.id
), followed AS (
    SELECT id FROM deliveries UNION ALL SELECT id FROM batches UNION ALL SELECT id FROM again WHERE kind = 'batch' AND batch_id IS NULL
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT again.id, 'available', again.args, again.kind, 'deliveries', 1, 1000, now() FROM again JOIN followed ON followed.id = again.id
)
SELECT count(*) FROM followed`

// ReclaimFromLost gives the running jobs of nodes that are not registered to whoever fetches them, and says how many.
func (s *Store) ReclaimFromLost(ctx context.Context) (int, error) {
	return s.reclaim(ctx, "j.state = 'running' AND NOT EXISTS (SELECT FROM postrider_internal.nodes n WHERE n.id = j.attempted_by[array_upper(j.attempted_by, 1)])")
}

// ReclaimOwn does the same for this node's running jobs that it does not know: their fetch was committed but its answer
// was lost. held are the jobs it does know; a job is given 15 s to arrive.
func (s *Store) ReclaimOwn(ctx context.Context, held []int64) (int, error) {
	const own = "j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = $1 AND j.attempted_at < now() - interval '15 seconds' AND j.id <> ALL ($2::bigint[])"
	return s.reclaim(ctx, own, s.node, held)
}

// Reclaim does the same for the jobs given: attempts that a clean stop of this node has cut. One that another node has
// taken up meanwhile is left to it.
func (s *Store) Reclaim(ctx context.Context, jobs []int64) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	const mine = "j.id = ANY ($1::bigint[]) AND (j.state <> 'running' OR j.attempted_by[array_upper(j.attempted_by, 1)] = $2)"
	return s.reclaim(ctx, mine, jobs, s.node)
}

func (s *Store) reclaim(ctx context.Context, whose string, args ...any) (n int, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(lockLostStatement, whose), args...)
		if err != nil {
			return err
		}
		lost, err := collectIDs(rows)
		if err != nil || len(lost) == 0 {
			return err
		}
		return tx.QueryRow(ctx, reclaimStatement, lost).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("reclaim jobs: %w", err)
	}
	routes, err := s.reclaimRoutes(ctx, whose, args...)
	if err != nil {
		return n, err
	}
	n += routes
	if n > 0 {
		s.notifier.poke()
	}
	return n, nil
}
