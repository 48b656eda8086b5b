package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each sample of an Azure service is published to a topic of each of Event Grid's schemas.
func TestPublishSamplesOfAzure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run(0, "topic", "create", "grid")
	h.run(0, "topic", "create", "cloud", "--input-schema", "CloudEventSchemaV1_0")
	listed := h.run(2, "publish", "grid", "--sample", "list").stderr
	_, list, found := strings.Cut(listed, "the samples of Azure services are:\n")
	require.True(t, found, listed)
	names := strings.Fields(list)
	require.Len(t, names, 13)
	for i, name := range names {
		h.run(0, "publish", []string{"grid", "cloud"}[i%2], "--sample="+name)
		h.run(0, "publish", "--sample", name, []string{"cloud", "grid"}[i%2], "--count", "2")
	}
	var events []struct{ Topic, EventType, Subject, Source string }
	require.NoError(t, json.Unmarshal([]byte(h.run(0, "event", "list", "--limit", "100", "-o", "json").stdout), &events))
	require.Len(t, events, 39)
	blob := map[string]string{}
	for _, e := range events {
		require.Contains(t, names, e.EventType)
		if e.EventType == "Microsoft.Storage.BlobCreated" {
			blob[e.Topic] = e.Source + " " + e.Subject
		}
	}
	const subject = " /blobServices/default/containers/invoices/blobs/2026/11/invoice-1807.pdf"
	require.Equal(t, subject, strings.TrimPrefix(blob["grid"], "/topics/grid"))
	require.Equal(t, "/subscriptions/5b4b650e-28b9-4790-b3ab-ddbd88d727c4/resourceGroups/shop/providers/"+
		"Microsoft.Storage/storageAccounts/shopfiles"+subject, blob["cloud"])
	require.Regexp(t, `no sample of type Microsoft\.Storage\.BlobMoved; there are:\s+Microsoft\.AppConfiguration\.Key`,
		h.run(2, "publish", "grid", "--sample", "Microsoft.Storage.BlobMoved").stderr)
	h.run(0, "publish", "grid", "--sample")
}
