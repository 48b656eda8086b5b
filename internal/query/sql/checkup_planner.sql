-- Lists the settings of the planner that are not PostgreSQL's defaults, except what our sessions set.
SELECT name, setting AS value, boot_val AS default
  FROM pg_settings
 WHERE (name LIKE 'enable\_%' OR name IN ('geqo', 'join_collapse_limit', 'from_collapse_limit', 'constraint_exclusion'))
   AND category LIKE 'Query Tuning%' AND setting <> boot_val AND name <> 'enable_bitmapscan'
 ORDER BY name
