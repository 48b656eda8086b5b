package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change that was answered by one node is seen by the next publish at the other.
func TestAnsweredChangeIsSeenByEveryNode(t *testing.T) {
	t.Parallel()
	changeIsSeenByEveryNode(t, migratedDatabase(t))
}

func changeIsSeenByEveryNode(t *testing.T, db *database) {
	t.Helper()
	this, other := startNode(t, db), startNode(t, db)
	key := this.topic("orders")
	for round := range 20 {
		subscription := fmt.Sprintf("/v1/topics/orders/subscriptions/round-%d", round)
		this.manage(http.StatusCreated, http.MethodPut, subscription, `{"endpointUrl":"http://127.0.0.1:9/"}`)
		other.publish("orders", key, cloudEvent(fmt.Sprintf("wanted-%d", round)))
		this.manage(http.StatusNoContent, http.MethodDelete, subscription, "")
		other.publish("orders", key, cloudEvent(fmt.Sprintf("unwanted-%d", round)))
		this, other = other, this
	}
	require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.events WHERE event_id LIKE 'wanted-%' AND matched = 1"))
	require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.events WHERE event_id LIKE 'unwanted-%' AND matched = 0"))
	require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.deliveries"))
}

func TestServeRefusesTheWellKnownKeyOfDev(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t))
	n.topic("orders")
	for _, header := range [][]string{{"aeg-sas-key", devAccessKey}, {"Authorization", "Bearer " + devAccessKey}} {
		status, text, err := call(t.Context(), http.MethodPost, n.api+"/topics/orders/api/events?api-version=2018-01-01", cloudEvent("e1"),
			append(header, "Content-Type", "application/cloudevents+json")...)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, text, "well-known access key of postrider dev")
	}
	status, _, err := call(t.Context(), http.MethodGet, n.api+"/v1/topics", "", "Authorization", "Bearer "+devAdminToken)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, status)
}
