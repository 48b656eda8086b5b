package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nodes make postrider.system when they start, and a node that is killed among dead letters takes no notice along: the
// next one reports each, under its own id.
func TestAKilledNodesDeadLettersAreReported(t *testing.T) {
	t.Parallel()
	db, operators := migratedDatabase(t), newGate(t)
	operators.open()
	refusing := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(refusing.Close)
	first := startNode(t, db)
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM postrider.topics WHERE topic = 'postrider.system'"))
	first.subscribe("postrider.system", "operators", operators.url)
	key := first.topic("orders")
	first.subscribe("orders", "billing", refusing.URL)
	for i := range 9 { // the tenth failure would begin a probation
		first.publish("orders", key, cloudEvent(fmt.Sprint("e", i)))
	}
	eventually(t, "there is a dead letter", db.atLeast(1, "SELECT count(*) FROM postrider.dead_letters"))
	first.kill()

	startNode(t, db)
	eventually(t, "all are dead letters", db.atLeast(9, "SELECT count(*) FROM postrider.dead_letters"))
	letters := one[[]string](db, "SELECT array_agg(dead_letter_id::text) FROM postrider.dead_letters")
	require.Len(t, letters, 9)
	eventually(t, "a system event reports each", func() bool {
		return one[int](db,
			"SELECT count(*) FROM postrider.deliveries WHERE topic = 'postrider.system' AND state = 'delivered'") == 9
	})
	require.ElementsMatch(t, letters,
		one[[]string](db, "SELECT array_agg(event_id) FROM postrider.events WHERE topic = 'postrider.system'"))
	require.ElementsMatch(t, letters, operators.arrivalsSoFar())
}
