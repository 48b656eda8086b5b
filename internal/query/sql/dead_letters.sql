-- Reads found dead letters, the newest first, or the oldest first, with the beginnings of their @responses.
SELECT -- dead_letter_columns.sql
       , NULL::text AS body_text, CASE WHEN @responses THEN left(last_response, 300) END AS last_response,
       NULL::jsonb AS edit, NULL::bigint AS version
  FROM postrider.dead_letters
 WHERE dead_letter_id = ANY (@ids)
 ORDER BY CASE WHEN @ascending THEN dead_lettered_at END, CASE WHEN @ascending THEN dead_letter_id END,
          dead_lettered_at DESC, dead_letter_id DESC
