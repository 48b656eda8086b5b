package management

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

// A topic that somebody deletes between the two looks is no reason to show none of the others'.
func TestSubscriptionsOfAllTopicsWhileOneIsDeleted(t *testing.T) {
	t.Parallel()
	answers := map[string]string{"/v1/topics": `{"value":[{"name":"gone"},{"name":"orders"}]}`, "/v1/topics/orders/subscriptions": `{"value":[{"name":"billing"}]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error":{"code":"NotFound","message":"topic \"gone\" does not exist"}}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	client, err := rest.ServerFlags{Server: server.URL, APIKey: "k"}.Client()
	require.NoError(t, err)
	list, err := subscriptionsOf(t.Context(), client, "")
	require.NoError(t, err)
	require.Equal(t, []rest.Object{{"name": "billing"}}, list)
	_, err = subscriptionsOf(t.Context(), client, "gone")
	require.ErrorContains(t, err, "does not exist", "who asks for one is told")
}
