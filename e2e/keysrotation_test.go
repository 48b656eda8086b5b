package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// credential is what a publisher sends, and how often it was accepted.
type credential struct {
	header, value string
	accepted      atomic.Int64
}

// rotation is a publisher that never stops, at two nodes in turn, whose credential is replaced meanwhile.
type rotation struct {
	t        *testing.T
	nodes    []*nodeProcess
	now      atomic.Pointer[credential]
	rejected atomic.Pointer[string]
	events   atomic.Int64
	end      chan struct{}
	group    sync.WaitGroup
}

func (r *rotation) send(n *nodeProcess, c *credential, id string) (int, string, error) {
	return call(r.t.Context(), http.MethodPost, n.api+"/topics/orders/api/events", cloudEvent(id), c.header, c.value,
		"Content-Type", "application/cloudevents+json")
}

func (r *rotation) run() {
	for n := 0; ; n++ {
		select {
		case <-r.end:
			return
		default:
		}
		c := r.now.Load()
		status, said, err := r.send(r.nodes[n%len(r.nodes)], c, fmt.Sprint("e-", n))
		if err != nil || status != http.StatusOK {
			met := fmt.Sprint(c.header, ": ", status, " ", said, " ", err)
			r.rejected.CompareAndSwap(nil, &met)
			continue
		}
		c.accepted.Add(1)
		r.events.Add(1)
	}
}

// use has the publisher take another credential, and returns once it has been accepted at every node: none of its
// requests has the one before.
func (r *rotation) use(header, value string) *credential {
	r.t.Helper()
	c := &credential{header: header, value: value}
	r.now.Store(c)
	eventually(r.t, "the new credential is in use", func() bool {
		return c.accepted.Load() > int64(len(r.nodes)) ||
			r.rejected.Load() != nil
	})
	require.Nil(r.t, r.rejected.Load())
	return c
}

// over requires that all nodes reject a credential.
func (r *rotation) over(c *credential) {
	r.t.Helper()
	for _, n := range r.nodes {
		eventually(r.t, "the old credential is rejected", func() bool {
			status, _, err := r.send(n, c, "late")
			return err == nil && (status == http.StatusUnauthorized || status == http.StatusTooManyRequests)
		})
	}
}

// Access keys and API keys are replaced while events are published, at two nodes, and nothing is rejected; what was
// replaced opens nothing any more.
func TestKeysOfPublishersAreReplaced(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	r := &rotation{
		t: t, nodes: []*nodeProcess{startNode(t, db, "--max-conns", "4"), startNode(t, db, "--max-conns", "4")},
		end: make(chan struct{}),
	}
	n := r.nodes[0]
	var keys struct{ Key1, Key2 string }
	read := func(text string) { require.NoError(t, json.Unmarshal([]byte(text), &keys)) }
	read(n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`))
	const regenerate = "/v1/topics/orders/regenerateKey"
	first := &credential{header: "aeg-sas-key", value: keys.Key1}
	r.now.Store(first)
	r.group.Go(r.run)
	t.Cleanup(r.group.Wait)
	stop := sync.OnceFunc(func() { close(r.end) })
	t.Cleanup(stop)

	second := r.use("aeg-sas-key", keys.Key2)
	read(n.manage(http.StatusOK, http.MethodPost, regenerate, `{"keyName":"key1"}`))
	require.NotEqual(t, first.value, keys.Key1)
	r.over(first)
	r.use("aeg-sas-key", keys.Key1)
	read(n.manage(http.StatusOK, http.MethodPost, regenerate, `{"keyName":"key2"}`))
	r.over(second)

	made := func(name string) string {
		var shown struct{ Key string }
		require.NoError(t,
			json.Unmarshal([]byte(n.manage(http.StatusCreated, http.MethodPost, "/v1/apiKeys",
				`{"name":"`+name+`","scope":"publish","topic":"orders"}`)), &shown))
		return shown.Key
	}
	third := r.use("Authorization", "Bearer "+made("shop-2026"))
	r.use("Authorization", "Bearer "+made("shop-2027"))
	n.manage(http.StatusOK, http.MethodDelete, "/v1/apiKeys/shop-2026", "")
	r.over(third)

	stop()
	r.group.Wait()
	require.Nil(t, r.rejected.Load())
	require.Equal(t, r.events.Load(), one[int64](db, "SELECT count(*) FROM postrider.events WHERE event_id LIKE 'e-%'"))
}
