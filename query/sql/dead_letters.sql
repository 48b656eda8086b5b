-- Lists a page of dead letters, the newest first. @end is the last one that the search for the page may read.
SELECT -- dead_letter_columns.sql
       , NULL::text AS body_text, NULL::text AS last_response, NULL::jsonb AS edit, NULL::bigint AS version
  FROM postrider.dead_letters -- dead_letters_where.sql
 ORDER BY CASE WHEN @backwards THEN dead_lettered_at END, CASE WHEN @backwards THEN dead_letter_id END,
          dead_lettered_at DESC, dead_letter_id DESC
 LIMIT @limit
