package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const otherEncryptionKey = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="

// steadily publishes one event after the other to the newest node until it is stopped, and counts those that were
// accepted.
func steadily(ctx context.Context, api *atomic.Pointer[string], key string) (stop func() int) {
	ctx, cancel := context.WithCancel(ctx)
	accepted := 0
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if status, _, err := postEvents(context.WithoutCancel(ctx), *api.Load(), "orders", key,
				cloudEvent(fmt.Sprint("e-", n))); err == nil && status == http.StatusOK {
				accepted++
			}
		}
	})
	return func() int { cancel(); publishing.Wait(); return accepted }
}

// The steps of docs/operate/configure.md: the key is replaced on a running service, and nothing is lost or
// rejected.
func TestEncryptionKeyRotation(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	var received atomic.Int64
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("code") == "planted-query" && r.Header.Get("X-Secret") == "planted-header" &&
			r.Header.Get("Webhook-Signature") != "" {
			_, _ = io.Copy(io.Discard, r.Body)
			received.Add(1)
		}
	}))
	defer e.Close()
	start := func(key string, also ...string) *nodeProcess {
		return startNodeWith(t,
			append(serveEnv(db), "POSTRIDER_ENCRYPTION_KEY="+key, "POSTRIDER_PREVIOUS_ENCRYPTION_KEYS="+strings.Join(also, ",")),
			"--max-conns", "4")
	}
	var api atomic.Pointer[string]
	turn := func(from *nodeProcess, to *nodeProcess) *nodeProcess {
		api.Store(&to.api)
		if from != nil {
			code := from.stop()
			require.Zero(t, code)
		}
		return to
	}

	next := func(step string) {
		t.Helper()
		r := postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "keys", "status")
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, step)
		require.Contains(t, r.stdout, "POSTRIDER_ENCRYPTION_KEY\n", "the key of this environment is named")
	}

	n := turn(nil, start(testEncryptionKey))
	next("No rotation is in progress")
	key := n.topic("orders")
	const path = "/v1/topics/orders/subscriptions/billing"
	n.manage(http.StatusCreated, http.MethodPut, path,
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","signing":{"enabled":true},
		"deliveryAttributeMappings":[{"name":"X-Secret","type":"Static","properties":{"value":"planted-header",`+
			`"isSecret":true}}]}`, e.URL+"?code=planted-query"))
	const seen = "SELECT version || ' ' || encode(endpoint_hash, 'hex') FROM postrider_internal.event_subscriptions"
	before := one[string](db, seen)
	stop := steadily(t.Context(), &api, key)

	n = turn(n, start(testEncryptionKey, otherEncryptionKey)) // 1. every node opens with both
	next("Step 2: restart each node")
	n = turn(n, start(otherEncryptionKey, testEncryptionKey)) // 2. every node seals with the new one
	next("Step 3: run `postrider keys rotate`")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/others", "")
	r := postrider(t, append(serveEnv(db), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "serve", "--listen",
		"127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "something may still be sealed with encryption key ")

	// 3.
	r = postrider(t,
		append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey,
			"POSTRIDER_PREVIOUS_ENCRYPTION_KEYS="+testEncryptionKey), "keys", "rotate")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "2 topics, 1 event subscription, 0 handshakes")
	require.Contains(t, r.stdout, "Retired: ")
	next("Step 4: restart " + n.name)
	turn(n, start(otherEncryptionKey)) // 4. the old key is gone
	next("No rotation is in progress")
	accepted := stop()
	require.Greater(t, accepted, 10)
	db.drained()
	require.GreaterOrEqual(t, received.Load(), int64(accepted))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
	require.Equal(t, before, one[string](db, seen), "no ETag is outdated, and endpoints are known again")
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM postrider.audit WHERE action = 'encryption_keys_retired'"))

	r = postrider(t, serveEnv(db), "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "is retired: set POSTRIDER_ENCRYPTION_KEY to the key that replaced it")
	r = postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "keys", "rotate")
	require.Contains(t, r.stdout, "No earlier key was in use")
	r = postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "keys", "rotate", "-o", "json")
	require.Contains(t, r.stdout, `"retired":[],"sealed":{"eventSubscriptions":0,"handshakes":0,"topics":0}`)
}
