package config

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// topicDeletedMeanwhile is a server that lists a topic and then does not have it.
func topicDeletedMeanwhile(t *testing.T) *rest.Client {
	t.Helper()
	responses := map[string]string{
		"/v1/policies":                    `{"value":[]}`,
		"/v1/topics":                      `{"value":[{"name":"gone"},{"name":"orders"}]}`,
		"/v1/topics/orders/subscriptions": `{"value":[{"name":"billing"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, found := responses[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			response = `{"error":{"code":"NotFound","message":"topic \"gone\" does not exist"}}`
		}
		_, _ = w.Write([]byte(response))
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{URL: server.URL, APIKey: "k"}.Client()
	require.NoError(t, err)
	return client
}

// A topic that is deleted while apply reads what exists is no error.
func TestApplyReadsWhileATopicIsDeleted(t *testing.T) {
	t.Parallel()
	a := &applier{client: topicDeletedMeanwhile(t), file: &applyFile{}, prune: true}
	require.NoError(t, a.read(t.Context()))
	require.Contains(t, a.existing, key{kindTopic, "", "orders"})
	require.NotContains(t, a.existing, key{kindTopic, "", "gone"})
	require.Contains(t, a.existing, key{kindSubscription, "orders", "billing"})
}

// A topic that is deleted meanwhile does not keep the event subscriptions of other topics from being listed.
func TestSubscriptionsOfAllTopicsWhileOneIsDeleted(t *testing.T) {
	t.Parallel()
	client := topicDeletedMeanwhile(t)
	list, err := subscriptionsOf(t.Context(), client, "")
	require.NoError(t, err)
	require.Equal(t, []rest.Object{{"name": "billing"}}, list)
	_, err = subscriptionsOf(t.Context(), client, "gone")
	require.ErrorContains(t, err, "does not exist", "a named topic must exist")
}
