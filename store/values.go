package store

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// column returns one value of each member of a group: an array parameter of a statement.
func column[Q, T any](group []Q, value func(Q) T) []T {
	values := make([]T, len(group))
	for i, req := range group {
		values[i] = value(req)
	}
	return values
}

// nullTime is NULL for the zero time.
func nullTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// nullInt is NULL for 0.
func nullInt(n int64) pgtype.Int8 { return pgtype.Int8{Int64: n, Valid: n != 0} }

// nullText is NULL for "". It removes what a text column cannot hold, so that no text of a third party fails a
// statement.
func nullText(s string) pgtype.Text {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	return pgtype.Text{String: s, Valid: s != ""}
}

// timeOrNone is the zero time for NULL.
func timeOrNone(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// collectIDs collects rows of one bigint.
func collectIDs(rows pgx.Rows) ([]int64, error) { return pgx.CollectRows(rows, pgx.RowTo[int64]) }
