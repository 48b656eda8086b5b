package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A node that is stopped responds to consumers that wait, without events.
func TestStoppedNodeRespondsToConsumers(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t))
	key := n.makeTopic("orders", cloudTopic)
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing", queueMode)
	type result struct {
		status int
		body   string
		err    error
	}
	results := make(chan result, 3)
	for range cap(results) {
		go func() {
			status, body, err := call(t.Context(), http.MethodPost,
				n.api+"/topics/orders/eventsubscriptions/billing:receive?maxWaitTime=120", "", "aeg-sas-key", key)
			results <- result{status, body, err}
		}()
	}
	eventually(t, "the consumers wait", func() bool {
		return valueOf(n.scrape(), "postrider_waiting_receivers") == 3
	})
	code := n.stop()
	require.Zero(t, code)
	for range cap(results) {
		require.Equal(t, result{http.StatusOK, `{"value":[]}`, nil}, <-results)
	}
}
