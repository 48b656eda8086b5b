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
	s := setup(t)
	require.NoError(t, s.store.Topics.EnsureSystem(t.Context()))
	const path = "/v1/topics/" + catalog.SystemTopic
	var list struct {
		Value []struct{ Name, InputSchema string }
	}
	require.NoError(t, json.Unmarshal([]byte(s.get("/v1/topics").body), &list))
	require.Equal(t, []struct{ Name, InputSchema string }{{catalog.SystemTopic, "CloudEventSchemaV1_0"}}, list.Value)
	s.get(path).is(200)

	for _, subscription := range []string{"operators", "second"} {
		s.put(path+"/subscriptions/"+subscription, `{"endpointUrl":"https://example.com/notices",`+
			`"filter":{"includedEventTypes":["postrider.deadLetter.created"],`+
			`"subjectBeginsWith":"/topics/orders"}}`).is(201)
	}
	s.delete(path + "/subscriptions/second").is(204)

	require.Contains(t, s.put(path, "").rejected(400, "InvalidRequest").Message, "reserved")
	for _, call := range []struct{ method, path, body string }{
		{http.MethodDelete, path, ""},
		{http.MethodPost, path + "/listKeys", ""},
		{http.MethodPost, path + "/regenerateKey", `{"keyName":"key1"}`},
	} {
		require.Contains(t, s.manage(call.method, call.path, call.body).rejected(409, "SystemTopic").Message,
			"belongs to postrider", call.path)
	}
	const event = `{"specversion":"1.0","id":"1","source":"/s","type":"postrider.deadLetter.created"}`
	rejection := s.send(http.MethodPost, "/topics/"+catalog.SystemTopic+"/api/events", event, "Authorization",
		"Bearer "+adminToken, "Content-Type", "application/cloudevents+json").rejected(400, "InvalidRequest")
	require.Contains(t, rejection.Message, "do not publish to it")
	s.publish(catalog.SystemTopic, "some key", event).rejected(401, "Unauthorized")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
}
