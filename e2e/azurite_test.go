package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"
)

const (
	azureKey    = "c2VjcmV0"
	containerID = "/subscriptions/1b2/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/mystorage/" +
		"blobServices/default/containers/dead"
)

// azurite starts Microsoft's emulator of Azure Storage with account mystorage, and returns its container "dead" and its
// address.
func azurite(t *testing.T) (*container.Client, string) {
	t.Helper()
	node, modules := nodePackages(t, "testdata/azurite")
	p := startProcess(t, append(ownEnvironment(), "AZURITE_ACCOUNTS=mystorage:"+azureKey), node,
		filepath.Join(modules, "node_modules/azurite/dist/src/blob/main.js"),
		"--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
	listening := regexp.MustCompile(`listens on http://(127\.0\.0\.1:\d+)`)
	var found []string
	eventually(t, "azurite listens", func() bool {
		found = listening.FindStringSubmatch(p.stdout.String())
		return found != nil
	})
	key, err := container.NewSharedKeyCredential("mystorage", azureKey)
	require.NoError(t, err)
	dead, err := container.NewClientWithSharedKeyCredential("http://"+found[1]+"/mystorage/dead", key, nil)
	require.NoError(t, err)
	_, err = dead.Create(t.Context(), nil)
	require.NoError(t, err)
	return dead, found[1]
}

// A node with the account's key and the command line with a SAS token write to Azure. What they wrote is imported.
func TestDeadletterExportToAzure(t *testing.T) {
	t.Parallel()
	dead, address := azurite(t)
	db := migratedDatabase(t)
	server := []string{
		"AZURE_STORAGE_ACCOUNT=mystorage", "AZURE_STORAGE_PROTOCOL=http", "AZURE_STORAGE_DOMAIN=" + address,
	}
	query := "?protocol=http&domain=" + address
	n := startNodeWith(t, append(serveEnv(db), "AZURE_STORAGE_ACCOUNT=mystorage", "AZURE_STORAGE_KEY="+azureKey),
		"--dead-letter-container="+strings.ReplaceAll(containerID, "/blobServices/default/containers", "")+
			"=azblob://dead"+query)
	key := n.topic("orders")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","deadLetterDestination":{"endpointType":"StorageBlob",`+
			`"properties":{"resourceId":%q}}}`, endpointWith(t, http.StatusBadRequest), containerID))
	n.publish("orders", key, cloudEvent("1"))
	eventually(t, "it is a dead letter", db.atLeast(1, "SELECT count(*) FROM postrider.dead_letters"))
	db.exec("UPDATE postrider_internal.dead_letters SET export_due_at = now()")
	eventually(t, "it is exported",
		db.atLeast(1, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'exported'"))
	location := one[string](db, "SELECT export_location FROM postrider.dead_letters")
	require.NotContains(t, location, "?")

	token := func(ends time.Duration) string {
		url, err := dead.GetSASURL(sas.ContainerPermissions{Create: true, Write: true, Read: true, List: true},
			time.Now().Add(ends), nil)
		require.NoError(t, err)
		_, token, _ := strings.Cut(url, "?")
		return token
	}
	export := func(output string, env ...string) result {
		return postrider(t, append(append(n.cliEnv(), server...), env...), "deadletter", "export", "-o", output)
	}
	const byHand = "by hand+100%.ndjson"
	r := export("azblob://dead/by%20hand+100%25.ndjson", "AZURE_STORAGE_SAS_TOKEN="+token(time.Hour))
	require.Zero(t, r.code, r.stderr)
	stored := func(key string) string {
		blob, err := dead.NewBlobClient(key).DownloadStream(t.Context(), nil)
		require.NoError(t, err)
		defer blob.Body.Close()
		body, err := io.ReadAll(blob.Body)
		require.NoError(t, err)
		return string(body)
	}
	byNode := stored(strings.TrimPrefix(location, "azblob://dead/"))
	require.Contains(t, byNode, `"deadletterreason"`)
	require.JSONEq(t, byNode, "["+stored(byHand)+"]", "the same records")

	r = export("azblob://dead/x", "AZURE_STORAGE_SAS_TOKEN="+token(-time.Minute))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "renew AZURE_STORAGE_SAS_TOKEN")
	require.NotContains(t, r.stderr, "sig=")

	// What both have written is imported from the container, each event once.
	load := func(source, key string) result {
		return postrider(t, append(append(n.cliEnv(), server...), key), "deadletter", "import", source, "--topic", "orders",
			"--subscription", "billing")
	}
	r = load("azblob://dead", "AZURE_STORAGE_KEY="+azureKey)
	require.Equal(t, "2 files: 1 imported, 1 already imported, 0 rejected.\n", r.stdout, r.stderr)
	require.Equal(t, strings.TrimPrefix(location, "azblob://dead/"),
		one[string](db, "SELECT imported_from FROM postrider.dead_letters WHERE delivery_id IS NULL"))
	r = load("azblob://dead/BILLING", "AZURE_STORAGE_SAS_TOKEN="+token(time.Hour))
	require.Equal(t, "1 file: 0 imported, 1 already imported, 0 rejected.\n", r.stdout, r.stderr)
	r = load("azblob://dead/BILL", "AZURE_STORAGE_SAS_TOKEN="+token(time.Hour))
	require.Contains(t, r.stderr, "no files were found")
	r = load("azblob://dead", "AZURE_STORAGE_SAS_TOKEN="+token(-time.Minute))
	require.Contains(t, r.stderr, "renew AZURE_STORAGE_SAS_TOKEN with the rights to read and list")
	require.NotContains(t, r.stderr, "sig=")
}
