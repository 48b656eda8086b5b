package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
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
	client := &apiClient{base: server.URL, key: "k", http: server.Client()}
	list, err := client.subscriptionsOf(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []object{{"name": "billing"}}, list)
	_, err = client.subscriptionsOf(t.Context(), "gone")
	require.ErrorContains(t, err, "does not exist", "who asks for one is told")
}
