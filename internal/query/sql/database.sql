-- Reads the size, name and version of the database, and its date.
SELECT pg_database_size(current_database()) AS database_bytes, current_database()::text AS database,
       current_setting('server_version') AS version, (now() AT TIME ZONE 'UTC')::date AS today
