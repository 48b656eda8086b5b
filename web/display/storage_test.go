package display

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

func TestStorageGroups(t *testing.T) {
	t.Parallel()
	today := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	groups := StorageGroupsOf(&query.Storage{
		Today: today,
		Partitions: []query.Partition{
			{Parent: "delivery_attempts", Day: today.AddDate(0, 0, 1), Bytes: 1, Rows: -1},
			{Parent: "delivery_attempts", Day: today, Bytes: 10, Rows: 100},
			{Parent: "delivery_attempts", Day: today.AddDate(0, 0, -1), Bytes: 20, Rows: 200},
			{Parent: "delivery_history", Day: today, Bytes: 5, Rows: 7},
		},
		Tables: []query.TableSize{
			{Name: "river_job", Bytes: 3, Rows: -1}, {Name: "deliveries", Bytes: 2, Rows: 1}, {Name: "users", Bytes: 1},
		},
	}, map[string]int{"delivery_attempts": 2})
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	require.Equal(t, []string{"Deliveries", "Attempts", "Jobs", "Other"}, names)
	require.Equal(t, int64(7), groups[0].Bytes)
	require.Equal(t, int64(8), groups[0].Rows)
	attempts := groups[1]
	require.Equal(t, int64(31), attempts.Bytes)
	require.Equal(t, int64(300), attempts.Rows)
	require.Equal(t, 1, attempts.Partitioned[0].Ahead)
	require.Equal(t, today.AddDate(0, 0, -1), *attempts.Partitioned[0].Oldest)
	require.Equal(t, today.AddDate(0, 0, 2), attempts.Partitioned[0].Dropped)
}
