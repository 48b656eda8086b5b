-- Processes events and acknowledges them in one transaction: both are committed, or neither. Run it again for more.
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -v topic=orders -v subscription=ledger -f consume.sql
CREATE TABLE IF NOT EXISTS consumed_orders (event_id text PRIMARY KEY, subject text, total numeric);

WITH received AS (
    SELECT * FROM postrider.receive(:'topic', :'subscription', 100)
), processed AS (
    INSERT INTO consumed_orders
    SELECT event_id, event ->> 'subject', (event #>> '{data,total}')::numeric FROM received
    RETURNING event_id
)
SELECT count(*) AS received, postrider.acknowledge(array_agg(lock_token)) AS lost FROM received;
