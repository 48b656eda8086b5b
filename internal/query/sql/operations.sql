-- Lists operations, the newest first, after one of them, or reads the operation @id.
SELECT operation_id, kind, state, CASE WHEN kind IN ('retry', 'cancel') THEN '{}' ELSE filter END AS filter,
       CASE WHEN kind IN ('retry', 'cancel') THEN filter END AS delivery_filter, topic, subscription, published_from,
       published_until, paths, note, rate_per_second, expected_count, counting, matched, done, skipped, failed,
       last_error,
       reached_at, started_by, created_at, finished_at,
       CASE WHEN pending IS NOT NULL
            THEN json_build_object('pending', pending, 'delivered', delivered, 'deadLettered', dead_lettered,
                                   'dropped', dropped, 'canceled', canceled)
        END AS outcomes
  FROM postrider.operations
 WHERE (@id::uuid IS NULL OR operation_id = @id)
   AND (@after::timestamptz IS NULL OR (created_at, operation_id) < (@after, @after_id::uuid))
 ORDER BY created_at DESC, operation_id DESC
 LIMIT @limit
