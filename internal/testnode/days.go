package testnode

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Day makes the partitions of a day that is so many days ago, and says which.
func (tn *Node) Day(t testing.TB, ago int) string {
	t.Helper()
	var day string
	require.NoError(t, tn.Pool.QueryRow(t.Context(),
		"SELECT to_char((now() AT TIME ZONE 'UTC')::date - $1::integer, 'YYYYMMDD')", ago).Scan(&day))
	for _, table := range []string{"events", "delivery_history", "delivery_attempts"} {
		tn.Exec(t, fmt.Sprintf(`CREATE TABLE postrider_internal.%[1]s_%[2]s (LIKE postrider_internal.%[1]s INCLUDING DEFAULTS
			    INCLUDING CONSTRAINTS);
			ALTER TABLE postrider_internal.%[1]s ATTACH PARTITION postrider_internal.%[1]s_%[2]s FOR VALUES
			FROM ('%[2]s') TO (('%[2]s'::date + 1)::date)`, table, day))
	}
	return day
}

// KeptDays lists the days of a table that are before today, and whether each is a partition of it.
func (tn *Node) KeptDays(t testing.TB, table string) string {
	t.Helper()
	return tn.Text(t, `SELECT coalesce(string_agg(right(c.relname, 8) || CASE WHEN i.inhrelid IS NULL THEN ' detached'
		    WHEN i.inhdetachpending THEN ' pending' ELSE '' END, ',' ORDER BY c.relname), '')
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relname ~ '^`+table+
		`_[0-9]{8}$' AND right(c.relname, 8)::date < (now() AT TIME ZONE 'UTC')::date`)
}

// MoveEvents says that all events were published on that day.
func (tn *Node) MoveEvents(t testing.TB, day string) {
	t.Helper()
	tn.Exec(t,
		fmt.Sprintf("UPDATE postrider_internal.events SET day = '%s'; UPDATE postrider_internal.deliveries "+
			"SET event_day = '%[1]s'; UPDATE postrider_internal.routes SET event_day = '%[1]s'; "+
			"UPDATE postrider_internal.sql_publishes SET event_day = '%[1]s'", day))
}
