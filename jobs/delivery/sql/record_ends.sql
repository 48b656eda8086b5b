-- The variant of T3 for single deliveries that end without a dead letter, see record.sql.
WITH -- results.sql
token AS (
    -- token.sql
), -- attempts.sql
members AS MATERIALIZED (
    SELECT result.delivery_id AS id, NULL::uuid AS dead_letter_id, result.* FROM result
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.id = m.id AND m.state IS NOT NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))
    -- finished.sql
), -- ends.sql
SELECT coalesce(array_agg(id), '{}') FROM token
