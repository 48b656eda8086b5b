-- Deletes up to $2 sums of counts of spans that began before $1.
DELETE FROM postrider_internal.rollup_sums WHERE ctid = ANY (ARRAY (
    SELECT s.ctid FROM unnest(ARRAY [1, 15, 60]::smallint[]) AS each_of(each)
     CROSS JOIN LATERAL (SELECT ctid FROM postrider_internal.rollup_sums WHERE span = each AND begins < $1
                          ORDER BY begins LIMIT $2 FOR UPDATE SKIP LOCKED) s
     LIMIT $2))
