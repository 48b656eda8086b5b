package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
)

// postrider.system is read and subscribed to as any topic. It is neither made, changed nor deleted by anybody, it is
// not published to, and its keys are shown to nobody.
func TestTheSystemTopic(t *testing.T) {
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
			`{"endpointUrl":"https://example.com/told","filter":{"includedEventTypes":["postrider.deadLetter.created"],`+
				`"subjectBeginsWith":"/topics/orders"}}`).status)
	}
	require.Equal(t, http.StatusNoContent, b.manage(http.MethodDelete, path+"/subscriptions/second", "").status)

	require.Contains(t, b.manage(http.MethodPut, path, "").refused(400, "InvalidRequest").Message, "reserved")
	for _, call := range []struct{ method, path, body string }{
		{http.MethodDelete, path, ""},
		{http.MethodPost, path + "/listKeys", ""},
		{http.MethodPost, path + "/regenerateKey", `{"keyName":"key1"}`},
	} {
		require.Contains(t, b.manage(call.method, call.path, call.body).refused(409, "SystemTopic").Message,
			"belongs to postrider", call.path)
	}
	const event = `{"specversion":"1.0","id":"1","source":"/s","type":"postrider.deadLetter.created"}`
	refusal := b.send(http.MethodPost, "/topics/"+catalog.SystemTopic+"/api/events", event, "Authorization",
		"Bearer "+adminToken, "Content-Type", "application/cloudevents+json").refused(400, "InvalidRequest")
	require.Contains(t, refusal.Message, "do not publish to it")
	b.publish(catalog.SystemTopic, "some key", event).refused(401, "Unauthorized")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.events"))
}
