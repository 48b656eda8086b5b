-- Deletes up to $2 counts of minutes before $1.
DELETE FROM postrider_internal.rollups WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM postrider_internal.rollups WHERE minute < $1 ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED))
