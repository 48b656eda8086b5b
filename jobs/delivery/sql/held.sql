-- Reads held deliveries that a cut may take: those that were never attempted, of an event subscription that is no
-- longer on hold. The others are sent alone, see release.sql. It continues after $2 and $3. With a rate limit, those
-- that have reached the age $5 are left: they expire, and would use the times of the others.
SELECT id, event_bytes, true AS held, time_to_live_since
  FROM (SELECT * FROM postrider_internal.deliveries
         WHERE subscription_id = $1 AND hold IS NOT NULL AND (time_to_live_since, id) > ($2, $3)
           AND ($5::interval IS NULL OR time_to_live_since > now() - $5::interval)
         ORDER BY time_to_live_since, id LIMIT $4) d
 WHERE attempts = 0
