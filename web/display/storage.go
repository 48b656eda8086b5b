package display

import (
	"slices"
	"strings"
	"time"

	"postrider/internal/query"
)

// StorageGroup is what the tables for one thing take.
type StorageGroup struct {
	Name  string
	Bytes int64
	Rows  int64 // PostgreSQL's estimate; tables that were not analyzed yet are left out
	// Partitioned are its tables with a partition for each day, and Tables the others.
	Partitioned []PartitionedTable
	Tables      []query.TableSize
}

// PartitionedTable is a table with a partition for each UTC day.
type PartitionedTable struct {
	Name    string
	Days    []query.Partition
	Ahead   int        // partitions for future days
	Keeps   int        // retention in days; 0 is forever
	Oldest  *time.Time // the day that is dropped next; nil if none
	Dropped time.Time  // when Oldest is dropped
}

// storageGroups are the groups in their order, with their tables or prefixes of them. The last one has all others.
var storageGroups = []struct {
	name   string
	tables []string
}{
	{"Events", []string{"events", "event_keys", "idempotency_keys", "routes", "sql_publish"}},
	{"Deliveries", []string{"deliver", "batches", "left_members"}},
	{"Attempts", []string{"delivery_attempts"}},
	{"Dead letters", []string{"dead_letters", "exports", "repairs"}},
	{"Jobs", []string{"river_"}},
	{"Other", []string{""}},
}

// groupOf is the index of a table's group: that of the longest prefix.
func groupOf(table string) (group int) {
	longest := -1
	for i, g := range storageGroups {
		for _, prefix := range g.tables {
			if strings.HasPrefix(table, prefix) && len(prefix) > longest {
				group, longest = i, len(prefix)
			}
		}
	}
	return group
}

// StorageGroupsOf groups the tables of the database; keeps are the retentions of the partitioned ones in days.
func StorageGroupsOf(found *query.Storage, keeps map[string]int) []StorageGroup {
	groups := make([]StorageGroup, len(storageGroups))
	for i, g := range storageGroups {
		groups[i].Name = g.name
	}
	for _, part := range found.Partitions {
		g := &groups[groupOf(part.Parent)]
		g.Bytes, g.Rows = g.Bytes+part.Bytes, g.Rows+max(0, part.Rows)
		if n := len(g.Partitioned); n == 0 || g.Partitioned[n-1].Name != part.Parent {
			g.Partitioned = append(g.Partitioned, PartitionedTable{Name: part.Parent, Keeps: keeps[part.Parent]})
		}
		table := &g.Partitioned[len(g.Partitioned)-1]
		if part.Day.After(found.Today) {
			table.Ahead++
			continue
		}
		table.Days = append(table.Days, part)
		if table.Keeps > 0 {
			table.Oldest, table.Dropped = &part.Day, part.Day.AddDate(0, 0, table.Keeps+1)
		}
	}
	for _, table := range found.Tables {
		g := &groups[groupOf(table.Name)]
		g.Bytes, g.Rows = g.Bytes+table.Bytes, g.Rows+max(0, table.Rows)
		g.Tables = append(g.Tables, table)
	}
	return slices.DeleteFunc(groups, func(g StorageGroup) bool { return g.Bytes == 0 })
}
