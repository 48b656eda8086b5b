package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

const otherEncryptionKey = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="

// keyID is the id of what a key seals.
func keyID(t *testing.T, text string) string {
	t.Helper()
	raw, err := postgres.ParseKey(text)
	require.NoError(t, err)
	sealer, err := postgres.NewSealer(raw)
	require.NoError(t, err)
	return sealer.KeyID()
}

// sealedWith counts what each key has sealed, in every column of that kind that there is.
func (d *database) sealedWith() map[string]int {
	d.t.Helper()
	rows, err := d.pool.Query(d.t.Context(), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = 'postrider_internal' AND column_name LIKE '%\_sealed' AND table_name <> 'encryption_keys'`)
	require.NoError(d.t, err)
	defer rows.Close()
	var queries []string
	for rows.Next() {
		var table, column string
		require.NoError(d.t, rows.Scan(&table, &column))
		queries = append(queries,
			fmt.Sprintf("SELECT substr(%s, 2, 8) AS id FROM postrider_internal.%s WHERE %s IS NOT NULL", column, table, column))
	}
	require.NoError(d.t, rows.Err())
	require.GreaterOrEqual(d.t, len(queries), 6)
	counts := map[string]int{}
	values, err := d.pool.Query(d.t.Context(), strings.Join(queries, " UNION ALL "))
	require.NoError(d.t, err)
	defer values.Close()
	for values.Next() {
		var id []byte
		require.NoError(d.t, values.Scan(&id))
		counts[hex.EncodeToString(id)]++
	}
	require.NoError(d.t, values.Err())
	return counts
}

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

	n := turn(nil, start(testEncryptionKey))
	key := n.topic("orders")
	const path = "/v1/topics/orders/subscriptions/billing"
	n.manage(http.StatusCreated, http.MethodPut, path,
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","signing":{"enabled":true},
		"deliveryAttributeMappings":[{"name":"X-Secret","type":"Static","properties":{"value":"planted-header",`+
			`"isSecret":true}}]}`, e.URL+"?code=planted-query"))
	etag := one[int64](db, "SELECT max(version) FROM postrider_internal.event_subscriptions")
	hash := one[string](db, "SELECT encode(endpoint_hash, 'hex') FROM postrider_internal.event_subscriptions")
	stop := steadily(t.Context(), &api, key)

	n = turn(n, start(testEncryptionKey, otherEncryptionKey)) // 1. every node opens with both
	n = turn(n, start(otherEncryptionKey, testEncryptionKey)) // 2. every node seals with the new one
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/others", "")
	old, fresh := keyID(t, testEncryptionKey), keyID(t, otherEncryptionKey)
	require.Equal(t, map[string]int{old: 6, fresh: 2}, db.sealedWith())
	r := postrider(t, append(serveEnv(db), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "serve", "--listen",
		"127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "something may still be sealed with encryption key "+old)

	// 3.
	r = postrider(t,
		append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey,
			"POSTRIDER_PREVIOUS_ENCRYPTION_KEYS="+testEncryptionKey), "keys", "rotate")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "2 topics, 1 event subscription, 0 handshakes")
	require.Contains(t, r.stdout, "Retired: "+old)
	require.Equal(t, map[string]int{fresh: 8}, db.sealedWith())
	n = turn(n, start(otherEncryptionKey)) // 4. the old key is gone
	accepted := stop()
	require.Greater(t, accepted, 10)
	db.drained()
	require.GreaterOrEqual(t, received.Load(), int64(accepted))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
	require.Equal(t, etag, one[int64](db, "SELECT version FROM postrider_internal.event_subscriptions"),
		"nothing that anybody has read is outdated")
	require.Equal(t, hash,
		one[string](db, "SELECT encode(endpoint_hash, 'hex') FROM postrider_internal.event_subscriptions"),
		"endpoints are known again")
	n.manage(http.StatusOK, http.MethodPatch, path, `{"labels":["a"]}`)
	require.Equal(t, hash,
		one[string](db, "SELECT encode(endpoint_hash, 'hex') FROM postrider_internal.event_subscriptions"))
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM postrider.audit WHERE action = 'encryption_keys_retired'"))

	r = postrider(t, serveEnv(db), "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "is retired: set POSTRIDER_ENCRYPTION_KEY to the key that replaced it")
	r = postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "keys", "rotate")
	require.Contains(t, r.stdout, "No earlier key was in use")
	r = postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+otherEncryptionKey), "keys", "rotate", "-o", "json")
	require.JSONEq(t,
		`{"keyId":"`+fresh+`","sealed":{"topics":0,"eventSubscriptions":0,"handshakes":0},"retired":[]}`, r.stdout)
}
