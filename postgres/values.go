package postgres

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Column returns one value of each member of a group: an array parameter of a statement.
func Column[Q, T any](group []Q, value func(Q) T) []T {
	values := make([]T, len(group))
	for i, req := range group {
		values[i] = value(req)
	}
	return values
}

// NullTime is NULL for the zero time.
func NullTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// NullInt is NULL for 0.
func NullInt(n int64) pgtype.Int8 { return pgtype.Int8{Int64: n, Valid: n != 0} }

// NullText is NULL for "". It removes what a text column cannot hold, so that no text of a third party fails a
// statement.
func NullText(s string) pgtype.Text {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	return pgtype.Text{String: s, Valid: s != ""}
}

// TimeOrNone is the zero time for NULL.
func TimeOrNone(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// CollectIDs collects rows of one bigint.
func CollectIDs(rows pgx.Rows) ([]int64, error) { return pgx.CollectRows(rows, pgx.RowTo[int64]) }
