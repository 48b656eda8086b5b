-- Reads a delivery.
SELECT -- delivery_columns.sql
  FROM postrider.deliveries d
 WHERE d.delivery_id = $1
