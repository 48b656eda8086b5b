package query

import (
	"context"
	"time"
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
	Partitions []Partition `db:"-"` // by table, the newest day first
	Tables     []TableSize `db:"-"` // the largest first
	// Of the database.
	DatabaseBytes     int64
	Database, Version string
	Today             time.Time
}

// ReadStorage reads the sizes of all tables. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadStorage(ctx context.Context) (*Storage, error) {
	var st Storage
	err := read(ctx, r.db, "storage", func(r *reading) {
		st = row[Storage](r, "database")
		st.Partitions = rows[Partition](r, "partitions")
		st.Tables = rows[TableSize](r, "tables")
	})
	return &st, err
}
