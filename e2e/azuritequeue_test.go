package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// azuriteQueues starts Microsoft's emulator of the queue service with account mystorage, and returns its address.
func azuriteQueues(t *testing.T) string {
	t.Helper()
	node, modules := nodePackages(t, "testdata/azurite")
	p := startProcess(t, append(ownEnvironment(), "AZURITE_ACCOUNTS=mystorage:"+azureKey), node,
		filepath.Join(modules, "node_modules/azurite/dist/src/queue/main.js"),
		"--queuePort", "0", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
	listening := regexp.MustCompile(`listens on (http://127\.0\.0\.1:\d+)`)
	var found []string
	eventually(t, "azurite listens", func() bool {
		found = listening.FindStringSubmatch(p.stdout.String())
		return found != nil
	})
	return found[1]
}

// askQueue makes a request about queue "orders" of the emulator, signed by hand: no client of queues is a dependency.
func askQueue(t *testing.T, address, method, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address+"/mystorage/orders"+path, http.NoBody)
	require.NoError(t, err)
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("X-Ms-Version", "2021-12-02")
	key, err := base64.StdEncoding.DecodeString(azureKey)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:%s\nx-ms-version:2021-12-02\n"+
		"/mystorage/mystorage/orders%s", method, date, path)
	r.Header.Set("Authorization", "SharedKey mystorage:"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s", body)
	return string(body)
}

// A storage queue that does not exist or rejects the key is not stored. Events arrive in base64, as Event Grid sends
// them; a key that stopped working costs a wait, and a queue that was deleted is NotFound.
func TestStorageQueueOfAzurite(t *testing.T) {
	t.Parallel()
	address := azuriteQueues(t)
	db := migratedDatabase(t)
	n := startNodeWith(t, serveEnv(db))
	key := n.topic("orders")
	put := func(status int, key, more string) string {
		return n.manage(status, http.MethodPut, "/v1/topics/orders/subscriptions/billing", fmt.Sprintf(`{"destination":{`+
			`"endpointType":"StorageQueue","properties":{"queueName":"orders","queueMessageTimeToLiveInSeconds":3600,`+
			`"connectionString":"AccountName=mystorage;AccountKey=%s;QueueEndpoint=%s/mystorage"}}%s}`, key, address, more))
	}
	const wrongKey = "d3Jvbmc="
	require.Contains(t, put(http.StatusBadRequest, azureKey, ""), "QueueNotFound")
	askQueue(t, address, http.MethodPut, "")
	require.Contains(t, put(http.StatusBadRequest, wrongKey, ""), "AuthenticationFailed")
	put(http.StatusCreated, azureKey, "")

	n.publish("orders", key, cloudEvent("1"))
	attempts := func(outcome string) func() bool {
		return db.atLeast(1, "SELECT count(*) FROM postrider.delivery_attempts WHERE outcome = $1", outcome)
	}
	eventually(t, "it is delivered", attempts("Delivered"))
	message := regexp.MustCompile(`<MessageText>([^<]*)</MessageText>`)
	receive := func() string {
		found := message.FindStringSubmatch(askQueue(t, address, http.MethodGet, "/messages"))
		require.NotNil(t, found)
		text, err := base64.StdEncoding.DecodeString(found[1])
		require.NoError(t, err)
		return string(text)
	}
	require.JSONEq(t, cloudEvent("1"), receive())

	put(http.StatusOK, wrongKey, `,"endpointValidation":"skip"`)
	n.publish("orders", key, cloudEvent("2"))
	eventually(t, "the key is rejected", attempts("Unauthorized"))
	put(http.StatusOK, azureKey, "")
	n.manage(http.StatusOK, http.MethodPost, "/v1/deliveries/"+one[string](db,
		"SELECT delivery_id::text FROM postrider.deliveries WHERE event_id = '2'")+"/retryNow", "")
	eventually(t, "it is delivered with the right key",
		db.atLeast(2, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.JSONEq(t, cloudEvent("2"), receive())

	askQueue(t, address, http.MethodDelete, "")
	n.publish("orders", key, cloudEvent("3"))
	eventually(t, "the queue is missing", attempts("NotFound"))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.dead_letters"))
	require.Equal(t, "pending", one[string](db, "SELECT state FROM postrider.deliveries WHERE event_id = '3'"))
}
