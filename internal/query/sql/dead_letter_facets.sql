-- Counts what the newest dead letters that a filter matches, or those with these ids, have in common.
SELECT facet, name, count
  FROM postrider_internal.dead_letter_facets(@filter, @ids::uuid[], @sample, @scan_limit, @top)
