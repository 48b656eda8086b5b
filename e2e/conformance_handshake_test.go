package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The validation handshake with receivers that others wrote: cloudevents/sdk-go responds to OPTIONS by itself, and
// Microsoft's library for JavaScript knows our validation event for its own.
func TestConformanceHandshake(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t))
	grid, cloud := n.makeTopic("grid", "{}"), n.topic("cloud")
	toNode, toGo, elsewhere := startReceiver(t), newCloudEventsReceiver(t, eventGridOrigin), newCloudEventsReceiver(t,
		"client.example.com")
	validated := func(status int, topic, name, schema, endpoint string) (response string) {
		t.Helper()
		return n.manage(status, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name,
			fmt.Sprintf(`{"endpointUrl":%q,"eventDeliverySchema":%q,"endpointValidation":"required"}`,
				endpoint+"/"+name, schema))
	}
	for _, row := range []struct{ topic, name, schema, endpoint string }{
		{"grid", "code", "EventGridSchema", toNode.url + "/grid"},
		{"grid", "options", "CloudEventSchemaV1_0", toNode.url + "/cloudevents"},
		{"cloud", "go-lone", "CloudEventSchemaV1_0", toGo.lone},
		{"cloud", "go-batched", "CloudEventSchemaV1_0", toGo.batched},
	} {
		validated(http.StatusCreated, row.topic, row.name, row.schema, row.endpoint)
		// The Go SDK only responds 200, and opens the callback URL at about the same time.
		eventually(t, row.name+" is validated", func() bool {
			var now struct{ ProvisioningState string }
			text := n.manage(http.StatusOK, http.MethodGet, "/v1/topics/"+row.topic+"/subscriptions/"+row.name, "")
			return json.Unmarshal([]byte(text), &now) == nil && now.ProvisioningState == "Succeeded"
		})
	}
	require.Equal(t, []string{eventGridOrigin, eventGridOrigin}, toGo.origins())
	require.Equal(t, "code", toNode.requests("code")[0].Handshake)
	require.Equal(t, eventGridOrigin, toNode.requests("options")[0].Handshake)

	require.Contains(t, validated(http.StatusBadRequest, "cloud", "rejected", "CloudEventSchemaV1_0", elsewhere.lone),
		"EndpointValidationFailed")
	require.NotEmpty(t, elsewhere.origins())

	status, text, err := call(t.Context(), http.MethodPost, n.api+eventsPath("grid"),
		"["+demoEvent("e1", "2026-01-01T00:00:00Z")+"]",
		"aeg-sas-key", grid, "Content-Type", "application/json")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	n.publish("cloud", cloud, cloudEvent("e2"))
	require.Equal(t, "e1", toNode.deliveries("code", 1)[0].Events[0]["id"])
	require.Equal(t, "e1", toNode.deliveries("options", 1)[0].Events[0]["id"])
	require.Contains(t, toGo.wait(1), "e2")
}

// origins are the origins of the handshakes so far.
func (r *cloudEventsReceiver) origins() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seenOrigins)
}
