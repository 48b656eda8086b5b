package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// A change that one node has confirmed applies to the next publish at the other.
func TestConfirmedChangeIsSeenByEveryNode(t *testing.T) {
	t.Parallel()
	changeIsSeenByEveryNode(t, migratedDatabase(t))
}

func changeIsSeenByEveryNode(t *testing.T, db *database) {
	t.Helper()
	sink := newGate(t)
	sink.open()
	this, other := startNode(t, db), startNode(t, db)
	key := this.topic("orders")
	const rounds = 12
	for round := range rounds {
		requireObeyed(t, db, sink, this, other, key, round)
		this, other = other, this
	}
	require.Equal(t, 2*rounds, one[int](db, "SELECT count(*) FROM postrider.deliveries"))
}

// requireObeyed makes an event subscription at one node, pauses it at the other, lets it go on and deletes it, and
// publishes after each response at the other node.
func requireObeyed(t *testing.T, db *database, sink *gate, this, other *nodeProcess, key string, round int) {
	t.Helper()
	const held = "SELECT count(*) FILTER (WHERE hold = 'paused') FROM postrider.deliveries WHERE event_id = $1"
	const matched = "SELECT matched FROM postrider.events WHERE event_id = $1"
	subscription := fmt.Sprintf("/v1/topics/orders/subscriptions/round-%d", round)
	id := func(what string) string { return fmt.Sprintf("%s-%d", what, round) }

	this.manage(http.StatusCreated, http.MethodPut, subscription,
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, sink.url))
	other.publish("orders", key, cloudEvent(id("pending")))
	require.Equal(t, 1, one[int](db, matched, id("pending")))

	other.manage(http.StatusOK, http.MethodPost, subscription+"/pause", "")
	this.publish("orders", key, cloudEvent(id("held")))
	require.Equal(t, 1, one[int](db, held, id("held")))

	this.manage(http.StatusOK, http.MethodPost, subscription+"/resume", "")
	this.manage(http.StatusNoContent, http.MethodDelete, subscription, "")
	other.publish("orders", key, cloudEvent(id("unwanted")))
	require.Zero(t, one[int](db, matched, id("unwanted")))
}

func TestServeRejectsTheWellKnownKeyOfDev(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t))
	n.topic("orders")
	for _, header := range [][]string{{"aeg-sas-key", devAccessKey}, {"Authorization", "Bearer " + devAccessKey}} {
		status, text, err := call(t.Context(), http.MethodPost, n.api+"/topics/orders/api/events?api-version=2018-01-01",
			cloudEvent("e1"),
			append(header, "Content-Type", "application/cloudevents+json")...)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, text, "well-known access key of postrider dev")
	}
	status, _, err := call(t.Context(), http.MethodGet, n.api+"/v1/topics", "", "Authorization",
		"Bearer "+rest.DevAdminToken)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, status)
}
