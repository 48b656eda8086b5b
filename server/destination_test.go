package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/server"
)

const storageAccount = "/subscriptions/1b2/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/mystorage"

// outside allows dead letters in two locations, and in one of Event Grid's containers.
func outside(o *server.Options) {
	for _, raw := range []string{"file:///var/dead", "s3://bucket?region=eu-west-1"} {
		location, err := endpointconf.ParseLocation(raw)
		if err != nil {
			panic(err)
		}
		o.DeadLetters.Allowed = append(o.DeadLetters.Allowed, location)
	}
	if err := o.DeadLetters.AddContainer("mystorage/dead=azblob://container"); err != nil {
		panic(err)
	}
}

func destinationOf(t *testing.T, body string) string {
	t.Helper()
	var shown struct{ DeadLetterDestination json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &shown))
	return string(shown.DeadLetterDestination)
}

func TestDeadLetterDestinationsOutside(t *testing.T) {
	t.Parallel()
	b := setup(t, outside)
	b.topic("orders", "")
	const path = "/v1/topics/orders/subscriptions/billing"
	for _, row := range []struct{ put, shown string }{
		{`{"endpointType":"Blob","properties":{"url":"file:///var/dead/orders"}}`, ""},
		{`{"endpointType":"Blob","properties":{"url":"s3://bucket/a","prefix":"b/c"}}`, ""},
		{
			`{"endpointType":"Blob","properties":{"url":"s3://bucket/a?region=eu-west-1","prefix":null,"resourceId":null}}`,
			`{"endpointType":"Blob","properties":{"url":"s3://bucket/a"}}`,
		},
		{
			`{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount + `","blobContainerName":"dead"}}`, "",
		},
		{`{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount +
			`/blobServices/default/containers/dead"}}`, ""},
		{`{"endpointType":"Rows","properties":null}`, `{"endpointType":"Rows"}`},
		{`{"endpointType":"None"}`, ""},
	} {
		if row.shown == "" {
			row.shown = row.put
		}
		response := b.manage(http.MethodPut, path,
			`{"endpointUrl":"https://example.com","deadLetterDestination":`+row.put+`}`)
		require.Less(t, response.status, 300, response.body)
		require.JSONEq(t, row.shown, destinationOf(t, response.body))
		read := b.manage(http.MethodGet, path, "")
		require.JSONEq(t, row.shown, destinationOf(t, read.body))
		var viewed string
		require.NoError(t,
			b.db.QueryRow(t.Context(), "SELECT dead_letter_destination::text FROM postrider.event_subscriptions").Scan(&viewed))
		require.JSONEq(t, row.shown, viewed)
	}
}

// An API client cannot make a node write to another location.
func TestInvalidDeadLetterDestinations(t *testing.T) {
	t.Parallel()
	b := setup(t, outside)
	b.topic("orders", "")
	const at = "deadLetterDestination.properties"
	for destination, target := range map[string]string{
		`{"endpointType":"Blob"}`: at,
		`{"endpointType":"Blob",` +
			`"properties":null}`: at,
		`{"endpointType":"Blob",` +
			`"properties":{}}`: at,
		`{"endpointType":"Blob",` +
			`"properties":{"prefix":"x"}}`: at,
		`{"endpointType":"Blob","properties":{"url":"s3://bucket",` +
			`"resourceId":"/x"}}`: at,
		`{"endpointType":"Rows",` +
			`"properties":{"url":"s3://bucket"}}`: at,
		`{"endpointType":"None",` +
			`"properties":{}}`: at,
		`{"endpointType":"StorageBlob",` +
			`"properties":{"url":"s3://bucket"}}`: at,
		`{"endpointType":"StorageBlob",` +
			`"properties":{"blobContainerName":"dead"}}`: at,
		`{"endpointType":"Blob",` +
			`"properties":{"url":"file:///etc"}}`: at + ".url",
		`{"endpointType":"Blob",` +
			`"properties":{"url":"file:///var/dead/../../etc"}}`: at + ".url",
		`{"endpointType":"Blob",` +
			`"properties":{"url":"file:///var/dead%2f..%2f.."}}`: at + ".url",
		`{"endpointType":"Blob",` +
			`"properties":{"url":"s3://other"}}`: at + ".url",
		`{"endpointType":"Blob",` +
			`"properties":{"url":"s3://bucket?region=eu-west-1&endpoint=http://evil.example"}}`: at + ".url",
		`{"endpointType":"Blob",` +
			`"properties":{"url":"https://bucket"}}`: at + ".url",
		`{"endpointType":"Blob","properties":{"url":"s3://bucket",` +
			`"prefix":"../x"}}`: at + ".prefix",
		`{"endpointType":"Blob","properties":{"url":"s3://bucket",` +
			`"bucket":"x"}}`: at + ".bucket",
		`{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount +
			`","blobContainerName":"other"}}`: at + ".blobContainerName",
		`{"endpointType":"StorageBlob","properties":{"resourceId":"mystorage",` +
			`"blobContainerName":"dead"}}`: at + ".resourceId",
		`{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount +
			`/blobServices/default/containers/elsewhere"}}`: at + ".blobContainerName",
	} {
		response := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing",
			`{"endpointUrl":"https://example.com","deadLetterDestination":`+destination+`}`)
		require.Equal(t, []string{target}, targets(response.rejected(400, "InvalidRequest")), "%s: %s", destination,
			response.body)
	}
	response := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"https://example.com","deadLetterDestination":{"endpointType":"StorageBlob",`+
			`"properties":{"resourceId":"`+storageAccount+`","blobContainerName":"other"}}}`)
	require.Contains(t, response.rejected(400, "InvalidRequest").Message, "--dead-letter-container mystorage/other=URL",
		"it says what to configure")
}

// By default no location is allowed.
func TestNoLocationIsAllowedByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	response := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"https://example.com",`+
			`"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"file:///tmp/x"}}}`)
	require.Contains(t, response.rejected(400, "InvalidRequest").Message, "--dead-letter-location file:///tmp/x")
}

func TestPatchOfADestinationOutside(t *testing.T) {
	t.Parallel()
	b := setup(t, outside)
	b.topic("orders", "")
	const path = "/v1/topics/orders/subscriptions/billing"
	require.Equal(t, 201,
		b.manage(http.MethodPut, path, `{"endpointUrl":"https://example.com",`+
			`"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"s3://bucket","prefix":"a"}}}`).status)
	for _, row := range []struct{ patch, shown string }{
		{`{"labels":["x"]}`, `{"endpointType":"Blob","properties":{"url":"s3://bucket","prefix":"a"}}`},
		{`{"deadLetterDestination":{"properties":{"prefix":null}}}`, `{"endpointType":"Blob",` +
			`"properties":{"url":"s3://bucket"}}`},
		{`{"deadLetterDestination":{"endpointType":"Blob","properties":{"prefix":"b"}}}`, `{"endpointType":"Blob",` +
			`"properties":{"url":"s3://bucket","prefix":"b"}}`},
		{`{"deadLetterDestination":{"endpointType":"Rows"}}`, `{"endpointType":"Rows"}`},
		{
			`{"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount +
				`","blobContainerName":"dead"}}}`,
			`{"endpointType":"StorageBlob","properties":{"resourceId":"` + storageAccount + `","blobContainerName":"dead"}}`,
		},
		{
			`{"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"file:///var/dead"}}}`,
			`{"endpointType":"Blob","properties":{"url":"file:///var/dead"}}`,
		},
		{`{"deadLetterDestination":null}`, `{"endpointType":"Rows"}`},
	} {
		response := b.manage(http.MethodPatch, path, row.patch)
		require.Equal(t, 200, response.status, response.body)
		require.JSONEq(t, row.shown, destinationOf(t, response.body), row.patch)
	}
	require.JSONEq(t, `["deadLetterDestination"]`, b.lastSettings(t))
}

// lastSettings are the settings of the last audited change.
func (b *bundle) lastSettings(t *testing.T) (settings string) {
	t.Helper()
	require.NoError(t, b.db.QueryRow(t.Context(),
		"SELECT details ->> 'settings' FROM postrider.audit ORDER BY audit_id DESC LIMIT 1").Scan(&settings))
	return settings
}
