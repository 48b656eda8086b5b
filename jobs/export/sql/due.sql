-- Returns up to @limit event subscriptions with due dead letters and no export. It steps through the index from one
-- event subscription to the next, so that many dead letters of one cost no more than a single one.
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
 ORDER BY export_due_at LIMIT @limit
