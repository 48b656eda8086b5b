package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Partition is one day of a partitioned table.
type Partition struct {
	Parent   string
	Day      time.Time
	Bytes    int64
	Rows     int64 // PostgreSQL's estimate; -1 = it has not looked yet
	Attached bool
}

// TableSize is a table that is not partitioned by day.
type TableSize struct {
	Name        string
	Bytes, Rows int64
	DeadRows    int64
	LastVacuum  *time.Time
}

// Storage is what takes space.
type Storage struct {
	Partitions    []Partition // by table, the newest day first
	Tables        []TableSize // the largest first
	DatabaseBytes int64
	Database      string
	Version       string
	Today         time.Time
}

const (
	partitionLines = `
SELECT left(c.relname, -9)::text AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       pg_total_relation_size(c.oid) AS bytes, c.reltuples::bigint AS rows, i.inhrelid IS NOT NULL AS attached
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ '^(events|delivery_history|delivery_attempts)_[0-9]{8}$'
 ORDER BY 1, 2 DESC`

	tableLines = `
SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, c.reltuples::bigint AS rows,
       coalesce(u.n_dead_tup, 0) AS dead_rows, greatest(u.last_vacuum, u.last_autovacuum) AS last_vacuum
  FROM pg_class c LEFT JOIN pg_stat_user_tables u ON u.relid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r' AND c.relname !~ '_[0-9]{8}$'
 ORDER BY 2 DESC, 1`

	databaseLine = `SELECT pg_database_size(current_database()) AS database_bytes, current_database()::text AS database,
		       current_setting('server_version') AS version, (now() AT TIME ZONE 'UTC')::date AS today`
)

// ReadStorage reads how much space is taken by what. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadStorage(ctx context.Context) (st *Storage, err error) {
	st = &Storage{}
	err = r.db.Read(ctx, "storage", func(tx pgx.Tx) error {
		if st.Partitions, err = postgres.Rows[Partition](ctx, tx, partitionLines, nil); err != nil {
			return err
		}
		if st.Tables, err = postgres.Rows[TableSize](ctx, tx, tableLines, nil); err != nil {
			return err
		}
		return tx.QueryRow(ctx, databaseLine).Scan(&st.DatabaseBytes, &st.Database, &st.Version, &st.Today)
	})
	return st, err
}
