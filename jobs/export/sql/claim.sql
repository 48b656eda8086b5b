-- Claims the due dead letters of @subscription, the oldest first, up to @limit rows and @bytes bytes, inserts the job
-- that writes them, and returns their number. Of two nodes at once, one claims none. The job is inserted as available,
-- because the promoter handles only deliveries.
WITH due AS MATERIALIZED (
    SELECT id, export_due_at, octet_length(body) AS bytes FROM postrider_internal.dead_letters
     WHERE subscription_id = @subscription AND export_state = 'pending' AND export_id IS NULL AND export_due_at <= now()
     ORDER BY export_due_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
), fitting AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY export_due_at, id) AS total FROM due) sized
     WHERE total <= @bytes OR total = bytes
), export AS (
    INSERT INTO postrider_internal.exports (subscription_id, job_id)
    SELECT @subscription, nextval('postrider_internal.river_job_id_seq') WHERE EXISTS (SELECT FROM fitting)
    ON CONFLICT (subscription_id) DO NOTHING RETURNING id, job_id
), job AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.* FROM export e, postrider_internal.new_job(e.job_id, 'export', jsonb_build_object('x', e.id), now()) j
), taken AS (
    UPDATE postrider_internal.dead_letters l SET export_id = export.id
      FROM export WHERE l.id = ANY (ARRAY (SELECT id FROM fitting)) RETURNING l.id
)
SELECT count(*) FROM taken
