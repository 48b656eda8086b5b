-- Lists the dead letters that a filter of the SQL functions matches, the newest first, after a place in the list.
SELECT -- dead_letter_columns.sql
       , NULL::text AS body_text, NULL::text AS last_response, NULL::jsonb AS edit, NULL::bigint AS version
  FROM postrider.dead_letters
 WHERE dead_letter_id = ANY (ARRAY (SELECT postrider_internal.find_dead_letters($1, $2, $3, $4)))
 ORDER BY dead_lettered_at DESC, dead_letter_id DESC
