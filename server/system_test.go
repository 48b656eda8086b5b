package server_test

import (
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
	listed, _ := s.listAll("/v1/topics", "inputSchema")
	require.Equal(t, []any{"CloudEventSchemaV1_0"}, listed)
	s.get(path).is(200)
	s.subscription(catalog.SystemTopic, "operators", `{"endpointUrl":"https://example.com/notices",`+
		`"filter":{"includedEventTypes":["postrider.deadLetter.created"],"subjectBeginsWith":"/topics/orders"}}`)
	s.delete(path + "/subscriptions/operators").is(204)

	require.Contains(t, s.put(path, "").rejected(400, "InvalidRequest").Message, "reserved")
	for _, a := range []response{
		s.delete(path), s.post(path+"/listKeys", ""), s.post(path+"/regenerateKey", `{"keyName":"key1"}`),
	} {
		require.Contains(t, a.rejected(409, "SystemTopic").Message, "belongs to postrider")
	}
	rejection := s.manage(http.MethodPost, "/topics/"+catalog.SystemTopic+"/api/events", cloudEvent("1"),
		"Content-Type", "application/cloudevents+json").rejected(400, "InvalidRequest")
	require.Contains(t, rejection.Message, "do not publish to it")
	s.publish(catalog.SystemTopic, "some key", cloudEvent("1")).rejected(401, "Unauthorized")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.events"))
}
