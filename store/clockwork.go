package store

import (
	"context"
	"fmt"
)

// promoteStep bounds one promotion: a burst of due retries is moved in steps, so that no statement runs long.
const promoteStep = 5000

// The condition is the exact beginning of River's fetching index (state, queue, priority, scheduled_at): finding that
// nothing is due costs 0.05 ms beside a million scheduled jobs. River's own scheduler runs on one node, every 5 s, and
// scans (108 ms at the same size).
const promoteStatement = `
WITH due AS (
    SELECT id FROM postrider_internal.river_job
     WHERE state = $1 AND queue = 'deliveries' AND priority = 1 AND (%s)
     ORDER BY scheduled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE postrider_internal.river_job j SET state = 'available', scheduled_at = least(j.scheduled_at, now()) FROM due WHERE j.id = due.id RETURNING j.id
)
SELECT count(*) FROM moved`

// Two of the times are River's own, for jobs that failed or were put off before their attempt began, and made with the
// clock of the process, which may be an hour off. The database's stamp of the fetch bounds the wait of those that are
// retryable; an available job is never meant for more than 5 s ahead.
var dueConditions = map[string]string{
	"scheduled": "scheduled_at <= now()",
	"retryable": "scheduled_at <= now() OR attempted_at < now() - interval '3 minutes'",
	"available": "scheduled_at > now() + interval '10 seconds'",
}

// Promote makes the jobs available whose time has come and says how many. Every node calls it every 250 ms; nodes
// skip each other's rows.
func (s *Store) Promote(ctx context.Context) (int, error) {
	total := 0
	for state, due := range dueConditions {
		for moved := promoteStep; moved == promoteStep; {
			if err := s.pool.QueryRow(ctx, fmt.Sprintf(promoteStatement, due), state, promoteStep).Scan(&moved); err != nil {
				return total, fmt.Errorf("promote due jobs: %w", err)
			}
			total += moved
		}
	}
	if total > 0 {
		s.notifier.poke()
	}
	return total, nil
}

// Register announces this node, before its first fetch: a running job of a node that is not announced is taken away
// from it.
func (s *Store) Register(ctx context.Context, host string) error {
	const insert = `INSERT INTO postrider_internal.nodes (id, host, version) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`
	if _, err := s.pool.Exec(ctx, insert, s.node, host, s.version); err != nil {
		return fmt.Errorf("register node %s: %w", s.node, err)
	}
	return nil
}

// Beat writes this node's heartbeat and reads everyone's. A node that was thought dead meanwhile announces itself again.
func (s *Store) Beat(ctx context.Context, host string) (map[string]int64, error) {
	const update = `INSERT INTO postrider_internal.nodes AS n (id, host, version, beat) VALUES ($1, $2, $3, 1)
		ON CONFLICT (id) DO UPDATE SET beat = n.beat + 1, beat_at = now()`
	if _, err := s.pool.Exec(ctx, update, s.node, host, s.version); err != nil {
		return nil, fmt.Errorf("write the heartbeat: %w", err)
	}
	rows, err := s.pool.Query(ctx, "SELECT id, beat FROM postrider_internal.nodes WHERE id <> $1", s.node)
	if err != nil {
		return nil, fmt.Errorf("read heartbeats: %w", err)
	}
	defer rows.Close()
	beats := map[string]int64{}
	for rows.Next() {
		var id string
		var beat int64
		if err := rows.Scan(&id, &beat); err != nil {
			return nil, fmt.Errorf("read heartbeats: %w", err)
		}
		beats[id] = beat
	}
	return beats, rows.Err()
}

// Unregister removes nodes: itself at a clean stop, or others that are dead. The beat of the dead is given, so that one
// that beat again after all stays.
func (s *Store) Unregister(ctx context.Context, node string, beat *int64) error {
	if _, err := s.pool.Exec(ctx, "DELETE FROM postrider_internal.nodes WHERE id = $1 AND ($2::bigint IS NULL OR beat = $2)", node, beat); err != nil {
		return fmt.Errorf("unregister node %s: %w", node, err)
	}
	return nil
}

// reclaimStatement replaces the running jobs of the lost. The replacement is a new row with one rerun more, and the
// delivery's token follows in the same statement: whoever ran the old row can record nothing any more. Rows that are
// being recorded at this moment are locked, and skipped.
const reclaimStatement = `
WITH found AS (
    SELECT j.id FROM postrider_internal.river_job j WHERE j.queue = 'deliveries' AND %s ORDER BY j.id FOR UPDATE SKIP LOCKED
), lost AS (
    DELETE FROM postrider_internal.river_job j USING found WHERE j.id = found.id RETURNING j.id, j.args
), again AS MATERIALIZED (
    SELECT id AS old_id, nextval('postrider_internal.river_job_id_seq') AS id, (args ->> 'd')::bigint AS delivery_id,
           args || jsonb_build_object('r', coalesce((args ->> 'r')::int, 0) + 1) AS args
      FROM lost
), followed AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.id, reruns = d.reruns + 1
      FROM again WHERE d.id = again.delivery_id AND d.job_id = again.old_id RETURNING again.id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT again.id, 'available', again.args, 'deliver', 'deliveries', 1, 1000, now() FROM again JOIN followed ON followed.id = again.id
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
	if err := s.pool.QueryRow(ctx, fmt.Sprintf(reclaimStatement, whose), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("reclaim jobs: %w", err)
	}
	if n > 0 {
		s.notifier.poke()
	}
	return n, nil
}
