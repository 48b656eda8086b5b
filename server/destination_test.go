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
		`"properties":{"resourceId":"` + storageAccount + `","blobContainerName":"dead"}}`
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	for _, row := range []struct{ put, shown string }{
		{blob + `"url":"s3://bucket/a?region=eu-west-1","prefix":null,"resourceId":null}}`, blob + `"url":"s3://bucket/a"}}`},
		{storage, storage},
		{`{"endpointType":"Rows","properties":null}`, `{"endpointType":"Rows"}`},
		{`{"endpointType":"None"}`, `{"endpointType":"None"}`},
		{blob + `"url":"s3://bucket","prefix":"a"}}`, blob + `"url":"s3://bucket","prefix":"a"}}`},
	} {
		response := s.put(billing, `{"endpointUrl":"https://example.com","deadLetterDestination":`+row.put+`}`).is(200)
		require.JSONEq(t, row.shown, destinationOf(t, response.body))
		require.JSONEq(t, row.shown, destinationOf(t, s.get(billing).body))
		require.JSONEq(t, row.shown,
			s.tn.Text(t, "SELECT dead_letter_destination::text FROM postrider.event_subscriptions"))
	}
	for _, row := range []struct{ patch, shown string }{
		{`{"labels":["x"]}`, blob + `"url":"s3://bucket","prefix":"a"}}`},
		{`{"deadLetterDestination":{"properties":{"prefix":null}}}`, blob + `"url":"s3://bucket"}}`},
		{`{"deadLetterDestination":` + blob + `"prefix":"b"}}}`, blob + `"url":"s3://bucket","prefix":"b"}}`},
		{`{"deadLetterDestination":` + storage + `}`, storage},
		{`{"deadLetterDestination":` + blob + `"url":"file:///var/dead"}}}`, blob + `"url":"file:///var/dead"}}`},
		{`{"deadLetterDestination":null}`, `{"endpointType":"Rows"}`},
	} {
		require.JSONEq(t, row.shown, destinationOf(t, s.patch(billing, row.patch).is(200).body), row.patch)
	}
	const last = "SELECT details ->> 'settings' FROM postrider.audit ORDER BY audit_id DESC LIMIT 1"
	require.Equal(t, `["deadLetterDestination"]`, s.tn.Text(t, last))

	// An API client cannot make a node write to another location. internal/endpointconf has the cases.
	const at = "deadLetterDestination.properties"
	for destination, target := range map[string]string{
		`"Blob"`:                             at,
		`"Blob","properties":{"prefix":"x"}`: at,
		`"Blob","properties":{"url":"s3://bucket","resourceId":"/x"}`: at,
		`"None","properties":{}`:                                                           at,
		`"StorageBlob","properties":{"url":"s3://bucket"}`:                                 at,
		`"Blob","properties":{"url":"file:///etc"}`:                                        at + ".url",
		`"Blob","properties":{"url":"s3://bucket","prefix":"../x"}`:                        at + ".prefix",
		`"Blob","properties":{"url":"s3://bucket","bucket":"x"}`:                           at + ".bucket",
		`"StorageBlob","properties":{"resourceId":"mystorage","blobContainerName":"dead"}`: at + ".resourceId",
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
