-- Names up to $1 event subscriptions that have something to export and no export in progress. It steps from one to
-- the next through the index: one with a hundred thousand dead letters that wait for their time costs no more than
-- one with a single dead letter.
WITH RECURSIVE step AS (
    (SELECT subscription_id, export_due_at FROM postrider_internal.dead_letters
      WHERE export_state = 'pending' AND export_id IS NULL ORDER BY subscription_id, export_due_at LIMIT 1)
    UNION ALL
    SELECT next.subscription_id, next.export_due_at FROM step CROSS JOIN LATERAL (
        SELECT l.subscription_id, l.export_due_at FROM postrider_internal.dead_letters l
         WHERE l.export_state = 'pending' AND l.export_id IS NULL AND l.subscription_id > step.subscription_id
         ORDER BY l.subscription_id, l.export_due_at LIMIT 1) next
)
SELECT subscription_id FROM step
 WHERE export_due_at <= now()
   AND NOT EXISTS (SELECT FROM postrider_internal.exports x WHERE x.subscription_id = step.subscription_id)
 ORDER BY export_due_at LIMIT $1
