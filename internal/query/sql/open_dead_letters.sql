-- Counts the open dead letters, up to @limit, along their index.
SELECT count(*)::integer AS open
  FROM (SELECT FROM postrider_internal.dead_letters WHERE state = 'open' LIMIT @limit) few
