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
	Rows     int64 // PostgreSQL's estimate; -1 = none yet
	Attached bool
}

// TableSize is a table that is not partitioned by day.
type TableSize struct {
	Name        string
	Bytes, Rows int64
	DeadRows    int64
	LastVacuum  *time.Time
}

// Storage is the size of all tables.
type Storage struct {
	Partitions    []Partition // by table, the newest day first
	Tables        []TableSize // the largest first
	DatabaseBytes int64
	Database      string
	Version       string
	Today         time.Time
}

var (
	partitionList = sqlFile("partitions.sql")
	tableList     = sqlFile("tables.sql")
)

// ReadStorage reads the sizes of all tables. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadStorage(ctx context.Context) (st *Storage, err error) {
	const database = `SELECT pg_database_size(current_database()), current_database(), current_setting('server_version'),
		(now() AT TIME ZONE 'UTC')::date`
	st = &Storage{}
	err = r.db.Read(ctx, "storage", func(tx pgx.Tx) error {
		if st.Partitions, err = postgres.Rows[Partition](ctx, tx, partitionList); err != nil {
			return err
		}
		if st.Tables, err = postgres.Rows[TableSize](ctx, tx, tableList); err != nil {
			return err
		}
		return tx.QueryRow(ctx, database).Scan(&st.DatabaseBytes, &st.Database, &st.Version, &st.Today)
	})
	return st, err
}
