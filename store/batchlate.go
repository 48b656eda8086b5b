package store

// lateBatchStatement is lateStatement for a batch: a late success ends it, with all that are still in it, through the queued
// retry's job row. Members that left meanwhile go their own ways.
const lateBatchStatement = `
WITH timed_out AS (
    SELECT FROM postrider_internal.delivery_attempts a
     WHERE a.batch_id = $1 AND a.job_id = $2 AND a.day >= (now() AT TIME ZONE 'UTC')::date - 1
    HAVING bool_and(NOT a.late)
), free AS (
    SELECT j.id FROM postrider_internal.batches b JOIN postrider_internal.river_job j ON j.id = b.job_id
     WHERE $3 AND b.id = $1 AND b.created_at = $20 AND j.kind = 'batch' AND j.state <> 'running' AND EXISTS (SELECT FROM timed_out)
       FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), held AS (
    SELECT b.id FROM postrider_internal.batches b WHERE $3 AND b.id = $1 AND b.created_at = $20 AND b.hold IS NOT NULL AND EXISTS (SELECT FROM timed_out) FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE postrider_internal.batches b SET state = 'delivered', finished_at = now(), job_id = NULL, hold = NULL, next_attempt_at = NULL, last_status = $4, last_outcome = $5
     WHERE b.id = $1 AND (b.job_id IN (SELECT id FROM gone) OR b.id IN (SELECT id FROM held)) RETURNING b.id
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING ended WHERE d.batch_id = ended.id RETURNING d.*
), going_on AS (SELECT FROM postrider_internal.batches WHERE id = $1 AND state = 'pending'
), ` + lateEnds + `
), answered AS (` + lateAnswer + "NULL, $1" + lateAnswerFrom + `
)
SELECT EXISTS (SELECT FROM ended)`
