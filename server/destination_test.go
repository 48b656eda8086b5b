package server_test

import (
	"encoding/json"
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
	s := setup(t, outside)
	s.topic("orders", "")
	const blob, storage = `{"endpointType":"Blob","properties":{`, `{"endpointType":"StorageBlob",` +
		`"properties":{"resourceId":"`
	for _, row := range []struct{ put, shown string }{
		{blob + `"url":"file:///var/dead/orders"}}`, ""},
		{blob + `"url":"s3://bucket/a","prefix":"b/c"}}`, ""},
		{blob + `"url":"s3://bucket/a?region=eu-west-1","prefix":null,"resourceId":null}}`, blob + `"url":"s3://bucket/a"}}`},
		{storage + storageAccount + `","blobContainerName":"dead"}}`, ""},
		{storage + storageAccount + `/blobServices/default/containers/dead"}}`, ""},
		{`{"endpointType":"Rows","properties":null}`, `{"endpointType":"Rows"}`},
		{`{"endpointType":"None"}`, ""},
	} {
		if row.shown == "" {
			row.shown = row.put
		}
		response := s.put(billing, `{"endpointUrl":"https://example.com","deadLetterDestination":`+row.put+`}`)
		require.Less(t, response.status, 300, response.body)
		require.JSONEq(t, row.shown, destinationOf(t, response.body))
		require.JSONEq(t, row.shown, destinationOf(t, s.get(billing).body))
		viewed := s.rows("SELECT dead_letter_destination::text AS d FROM postrider.event_subscriptions")[0]["d"].(string)
		require.JSONEq(t, row.shown, viewed)
	}

	s.put(billing, `{"endpointUrl":"https://example.com","deadLetterDestination":`+
		blob+`"url":"s3://bucket","prefix":"a"}}}`).is(200)
	for _, row := range []struct{ patch, shown string }{
		{`{"labels":["x"]}`, blob + `"url":"s3://bucket","prefix":"a"}}`},
		{`{"deadLetterDestination":{"properties":{"prefix":null}}}`, blob + `"url":"s3://bucket"}}`},
		{`{"deadLetterDestination":` + blob + `"prefix":"b"}}}`, blob + `"url":"s3://bucket","prefix":"b"}}`},
		{`{"deadLetterDestination":{"endpointType":"Rows"}}`, `{"endpointType":"Rows"}`},
		{
			`{"deadLetterDestination":` + storage + storageAccount + `","blobContainerName":"dead"}}}`,
			storage + storageAccount + `","blobContainerName":"dead"}}`,
		},
		{`{"deadLetterDestination":` + blob + `"url":"file:///var/dead"}}}`, blob + `"url":"file:///var/dead"}}`},
		{`{"deadLetterDestination":null}`, `{"endpointType":"Rows"}`},
	} {
		require.JSONEq(t, row.shown, destinationOf(t, s.patch(billing, row.patch).is(200).body), row.patch)
	}
	const last = "SELECT details ->> 'settings' AS changed FROM postrider.audit ORDER BY audit_id DESC LIMIT 1"
	require.Equal(t, `["deadLetterDestination"]`, s.rows(last)[0]["changed"])
}

// An API client cannot make a node write to another location. internal/endpointconf has the cases.
func TestInvalidDeadLetterDestinations(t *testing.T) {
	t.Parallel()
	s := setup(t, outside)
	s.topic("orders", "")
	const at = "deadLetterDestination.properties"
	for destination, target := range map[string]string{
		`"Blob"`:                             at,
		`"Blob","properties":null`:           at,
		`"Blob","properties":{}`:             at,
		`"Blob","properties":{"prefix":"x"}`: at,
		`"Blob","properties":{"url":"s3://bucket","resourceId":"/x"}`:                      at,
		`"Rows","properties":{"url":"s3://bucket"}`:                                        at,
		`"None","properties":{}`:                                                           at,
		`"StorageBlob","properties":{"url":"s3://bucket"}`:                                 at,
		`"StorageBlob","properties":{"blobContainerName":"dead"}`:                          at,
		`"Blob","properties":{"url":"file:///etc"}`:                                        at + ".url",
		`"Blob","properties":{"url":"file:///var/dead/../../etc"}`:                         at + ".url",
		`"Blob","properties":{"url":"s3://bucket?endpoint=http://evil.example"}`:           at + ".url",
		`"Blob","properties":{"url":"s3://bucket","prefix":"../x"}`:                        at + ".prefix",
		`"Blob","properties":{"url":"s3://bucket","bucket":"x"}`:                           at + ".bucket",
		`"StorageBlob","properties":{"resourceId":"mystorage","blobContainerName":"dead"}`: at + ".resourceId",
		`"StorageBlob","properties":{"resourceId":"` + storageAccount + `","blobContainerName":"other"}`: at +
			".blobContainerName",
	} {
		response := s.put(billing, `{"endpointUrl":"https://example.com","deadLetterDestination":{"endpointType":`+
			destination+`}}`)
		require.Equal(t, []string{target}, targets(response.rejected(400, "InvalidRequest")), "%s: %s", destination,
			response.body)
	}
	response := s.with().put(billing, `{"endpointUrl":"https://example.com",`+ // by default no location is allowed
		`"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"file:///tmp/x"}}}`)
	require.Contains(t, response.rejected(400, "InvalidRequest").Message, "--dead-letter-location file:///tmp/x",
		"it says what to configure")
}
