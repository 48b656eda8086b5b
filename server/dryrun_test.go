package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dry run checks the settings and shows the result of a PUT. It stores nothing.
func TestDryRunOfAnEventSubscription(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	const path = billing
	const settings = `{"endpointUrl":"https://example.com/?code=1","endpointValidation":"skip","maxEventsPerBatch":5,` +
		`"labels":["a"],
		"deliveryAttributeMappings":[{"name":"X-A","type":"Static","properties":{"value":"v","isSecret":true}}]}`
	would := s.put(path+"?dryRun=true", settings).json(200)
	s.get(path).json(404)
	is := s.put(path+"?dryRun=false", settings).json(201)
	audited := len(s.rows("SELECT 1 FROM postrider.audit"))
	for _, own := range []string{"etag", "createdAt", "updatedAt"} {
		delete(would, own)
		delete(is, own)
	}
	require.Equal(t, is, would)

	// no endpoint is called
	other := s.put(path+"?dryRun=true", `{"endpointUrl":"https://example.com/other","endpointValidation":"required"}`).
		json(200)
	require.EqualValues(t, 1, other["maxEventsPerBatch"])
	require.Equal(t, "required", other["endpointValidation"])
	require.EqualValues(t, 5, s.get(path).json(200)["maxEventsPerBatch"])
	wrong := s.put(path+"?dryRun=true", `{"endpointUrl":"https://10.0.0.1/","maxEventsPerBatch":0}`)
	require.Equal(t, http.StatusBadRequest, wrong.status)
	require.Len(t, wrong.json(400)["error"].(map[string]any)["details"], 2)
	require.Len(t, s.rows("SELECT 1 FROM postrider.audit"), audited, "nothing was done that would be in the audit")
}
