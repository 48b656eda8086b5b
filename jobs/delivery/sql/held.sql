-- Reads held deliveries that a cut may take: those that are due and were never attempted, of an event subscription that
-- is no longer on hold. The others are sent alone, see release.sql. It continues after @since and @id. With a rate
-- limit, those that have reached the age @max_age are left: they expire, and would use the permits of the others.
SELECT id, event_bytes, true AS held, time_to_live_since
  FROM (SELECT * FROM postrider_internal.deliveries
         WHERE subscription_id = @subscription AND hold IS NOT NULL AND (time_to_live_since, id) > (@since, @id)
           AND (@max_age::interval IS NULL OR time_to_live_since > now() - @max_age::interval)
         ORDER BY time_to_live_since, id LIMIT @limit) d
 WHERE attempts = 0 AND next_attempt_at <= now()
