package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// postrider.system can be read and subscribed to. It cannot be created, changed, deleted or published to, and has no
// access keys.
func TestSystemTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.store.Topics.EnsureSystem(t.Context()))
	const path = "/v1/topics/" + catalog.SystemTopic
	var list struct {
		Value []struct{ Name, InputSchema string }
	}
	require.NoError(t, json.Unmarshal([]byte(b.manage(http.MethodGet, "/v1/topics", "").body), &list))
	require.Equal(t, []struct{ Name, InputSchema string }{{catalog.SystemTopic, "CloudEventSchemaV1_0"}}, list.Value)
	require.Equal(t, http.StatusOK, b.manage(http.MethodGet, path, "").status)

	for _, subscription := range []string{"operators", "second"} {
		require.Equal(t, http.StatusCreated, b.manage(http.MethodPut, path+"/subscriptions/"+subscription,
			`{"endpointUrl":"https://example.com/notices","filter":{"includedEventTypes":["postrider.deadLetter.created"],`+
				`"subjectBeginsWith":"/topics/orders"}}`).status)
	}
	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, path+"/subscriptions/second", "").status)

	require.Contains(t, b.manage(http.MethodPut, path, "").rejected(400, "InvalidRequest").Message, "reserved")
	for _, call := range []struct{ method, path, body string }{
		{http.MethodDelete, path, ""},
		{http.MethodPost, path + "/listKeys", ""},
		{http.MethodPost, path + "/regenerateKey", `{"keyName":"key1"}`},
	} {
		require.Contains(t, b.manage(call.method, call.path, call.body).rejected(409, "SystemTopic").Message,
			"belongs to postrider", call.path)
	}
	const event = `{"specversion":"1.0","id":"1","source":"/s","type":"postrider.deadLetter.created"}`
	rejection := b.send(http.MethodPost, "/topics/"+catalog.SystemTopic+"/api/events", event, "Authorization",
		"Bearer "+adminToken, "Content-Type", "application/cloudevents+json").rejected(400, "InvalidRequest")
	require.Contains(t, rejection.Message, "do not publish to it")
	b.publish(catalog.SystemTopic, "some key", event).rejected(401, "Unauthorized")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.events"))
}
