-- How many rows of river_job are dead, and whether a vacuum is due: more than @dead, the @left that the last one left,
-- and a fifth of the live ones.
SELECT n_dead_tup, n_dead_tup > @dead::bigint + @left::bigint + n_live_tup / 5
  FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal' AND relname = 'river_job'
