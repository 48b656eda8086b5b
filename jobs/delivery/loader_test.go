package delivery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
)

// Only yesterday's and today's partitions are looked at first; what waited longer is found all the same, body and all,
// beside what is new and beside what is gone.
func TestLoadFindsEventsOfAnyDay(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 3)
	for _, statement := range []string{
		"CREATE TABLE postrider_internal.events_old (LIKE postrider_internal.events INCLUDING ALL)",
		"INSERT INTO postrider_internal.events_old SELECT * FROM postrider_internal.events WHERE event_id = 'e-0'",
		"UPDATE postrider_internal.events_old SET day = day - 20",
		"DELETE FROM postrider_internal.events WHERE event_id IN ('e-0', 'e-1')",
		"DO $$ BEGIN EXECUTE format('ALTER TABLE postrider_internal.events ATTACH PARTITION postrider_internal.events_old " +
			"FOR VALUES FROM (%L) TO (%L)', now()::date - 25, now()::date - 15); END $$",
	} {
		tn.Exec(t, statement)
	}
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET event_day = event_day - 20 WHERE id = $1", d[0])

	for range 2 { // the first look knows no day yet
		for i, row := range []struct {
			id      string
			missing bool
		}{{"e-0", false}, {"", true}, {"e-2", false}} {
			work, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i]}, j[i])
			require.NoError(t, err)
			require.Equal(t, row.missing, work.Members[0].EventMissing)
			require.Equal(t, row.id, work.Members[0].Event.ID)
			require.Equal(t, row.missing, len(work.Members[0].Event.Body) == 0)
			work.Release()
		}
	}
}

func TestKeptPlansReadTablesByKeys(t *testing.T) {
	t.Parallel()
	testnode.RequireKeysInPlans(t, delivery.DeliveryStatements())
}
