package endpointconf_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

type properties = endpointconf.DeadLetterProperties

func locations(t *testing.T, allowed ...string) endpointconf.ExportLocations {
	t.Helper()
	var l endpointconf.ExportLocations
	for _, raw := range allowed {
		location, err := endpointconf.ParseLocation(raw)
		require.NoError(t, err, raw)
		l.Allowed = append(l.Allowed, location)
	}
	return l
}

func TestInvalidLocations(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "dead", "/var/dead", "file:dead", "file://dead/letters", "file:///", "file:///a/../b", "file:///a/%2e%2e/b",
		"file:///a/./b", "file:///a//b", "file:///a?x=1", `file:///a\b`, "file:///a%00b", "file:///a%0Ab",
		"s3://", "s3:///key", "s3://user@bucket", "s3://user:secret@bucket", "s3://bucket/a/../b", "s3://bucket:9000",
		"s3://bucket:",
		"s3://bucket#x", "s3://bucket/a b", "file:///straße", "file:///100%",
		"azblob://", "gs://bucket", "mem://", "http://bucket", "%",
	} {
		_, err := endpointconf.ParseLocation(raw)
		require.Error(t, err, raw)
	}
}

// A parameter that no part of a node reads is an error when the node starts, not when a dead letter is due.
func TestParametersOfLocations(t *testing.T) {
	t.Parallel()
	for raw, says := range map[string]string{
		"s3://bucket?region=a&use_path_style=true&endpoint=http://127.0.0.1:9000/":       "",
		"s3://bucket?profile=a&anonymous=false&accelerate=true&dualstack=true":           "",
		"s3://bucket?ssetype=aws:kms&kmskeyid=arn:aws:kms:eu-west-1:1:key/x":             "",
		"azblob://dead?storage_account=a&domain=localhost:1&protocol=http&localemu=true": "",
		"azblob://dead?cdn=true": "",
		"s3://bucket?role=arn:x": `must have no parameter "role" in its query; s3:// has accelerate, anonymous, dualstack, ` +
			`endpoint, kmskeyid, profile, region, ssetype, use_path_style`,
		"azblob://dead?region=a": `must have no parameter "region" in its query; azblob:// has cdn, domain, localemu, ` +
			`protocol, storage_account`,
		"s3://bucket?region=a&region=b":             "must have one value of parameter region",
		"s3://bucket?region=":                       "must have one value of parameter region",
		"s3://bucket?use_path_style=1":              `must have true or false as parameter use_path_style, not "1"`,
		"azblob://dead?protocol=ftp":                `must have https or http as parameter protocol, not "ftp"`,
		"s3://bucket?endpoint=127.0.0.1:9000":       "without a path, as endpoint",
		"s3://bucket?endpoint=http://u:p@host":      "as endpoint",
		"s3://bucket?endpoint=https://host/storage": "as endpoint",
		"s3://bucket?endpoint=https://host?a":       "as endpoint",
		"s3://bucket?%zz":                           `must be percent-encoded: write "%" as %25`,
		"s3://bucket?region=a;b":                    "must have a query such as name=value&name=value",
	} {
		_, err := endpointconf.ParseLocation(raw)
		if says == "" {
			require.NoError(t, err, raw)
			continue
		}
		require.ErrorContains(t, err, says, raw)
	}
}

func TestLocationWithinAnAllowedOne(t *testing.T) {
	t.Parallel()
	l := locations(t, "file:///var/dead", "s3://bucket?region=eu-west-1", "s3://bucket/inner/?region=eu-north-1",
		"azblob://container/dead")
	for _, row := range []struct{ url, prefix, target, query string }{
		{"file:///var/dead", "", "file:///var/dead", ""},
		{"file:///var/dead/", "orders/x", "file:///var/dead/orders/x", ""},
		{"file:///var/dead/orders", "x", "file:///var/dead/orders/x", ""},
		{"file:///var/dead/100%25%3F", "a b", "file:///var/dead/100%25%3F/a%20b", ""},
		{"s3://bucket", "", "s3://bucket", "region=eu-west-1"},
		{"s3://bucket/orders", "a", "s3://bucket/orders/a", "region=eu-west-1"},
		{"s3://bucket?region=eu-west-1", "", "s3://bucket", "region=eu-west-1"},
		{"s3://bucket/inner", "", "s3://bucket/inner", "region=eu-north-1"},
		{"s3://bucket/inner/most", "", "s3://bucket/inner/most", "region=eu-north-1"},
		{"s3://bucket/inner-other", "", "s3://bucket/inner-other", "region=eu-west-1"},
		{"azblob://container/dead/x", "", "azblob://container/dead/x", ""},
	} {
		target, err := l.Resolve(properties{URL: row.url, Prefix: row.prefix})
		require.NoError(t, err, row.url)
		require.Equal(t, row.target, target.String())
		require.Equal(t, row.query, target.Location.Query, row.url)
		require.Contains(t, l.Allowed, target.Location, row.url)
	}
}

// A client that may change event subscriptions cannot make a node write elsewhere or send its credentials elsewhere.
func TestLocationsNotAllowed(t *testing.T) {
	t.Parallel()
	some := locations(t, "file:///var/dead", "s3://bucket/dead?region=eu-west-1")
	for _, row := range []struct{ url, prefix, field, says string }{
		{
			"file:///var/deadly", "", "url",
			"must be, or be within, a --dead-letter-location: file:///var/dead or s3://bucket/dead",
		},
		{"file:///var", "", "url", "not allowed"},
		{"file:///var/dead/../x", "", "url", ".."},
		{"file:///var/dead/%2e%2e/x", "", "url", ".."},
		{"s3://bucket", "", "url", "not allowed"},
		{"s3://other/dead", "", "url", "not allowed"},
		{"s3://bucket/dead?region=eu-west-1&endpoint=http://evil.example", "", "url", "no query"},
		{"s3://bucket/dead?endpoint=http://evil.example", "", "url", "no query"},
		{"azblob://bucket/dead", "", "url", "not allowed"},
		{"azblob://Bad_name/dead", "", "url", `must name a container: 3 to 63 letters, digits and '-', not "Bad_name"`},
		{"", "x", "url", "must begin with"},
		{"file:///var/dead", "../x", "prefix", "must be a path"},
		{"file:///var/dead", "/x", "prefix", "must be a path"},
		{"file:///var/dead", "x/", "prefix", "must be a path"},
		{"file:///var/dead", "x/./y", "prefix", "must be a path"},
		{"file:///var/dead", "x\ny", "prefix", "must be a path"},
	} {
		_, err := some.Resolve(properties{URL: row.url, Prefix: row.prefix})
		wrong := requireField(t, err, "deadLetterDestination.properties."+row.field)
		require.Contains(t, wrong.Message, row.says, row.url)
	}
	_, err := endpointconf.ExportLocations{}.Resolve(properties{URL: "s3://bucket?region=x"})
	require.ErrorContains(t, err, "--dead-letter-location s3://bucket")
}

const accountID = "/subscriptions/1b2/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/mystorage"

func TestContainersOfEventGrid(t *testing.T) {
	t.Parallel()
	for _, configured := range []string{
		"mystorage/dead=s3://bucket/dead?region=eu-west-1", "MyStorage/DEAD=s3://bucket/dead?region=eu-west-1",
		accountID + "/dead=s3://bucket/dead?region=eu-west-1",
		accountID + "/blobServices/default/containers/dead=s3://bucket/dead?region=eu-west-1",
	} {
		var l endpointconf.ExportLocations
		require.NoError(t, l.AddContainer(configured))
		for _, p := range []properties{
			{ResourceID: accountID, BlobContainerName: "dead"},
			{ResourceID: accountID + "/blobServices/default/containers/dead"},
			{ResourceID: accountID + "/blobservices/default/containers/dead", BlobContainerName: "dead"},
		} {
			target, err := l.Resolve(p)
			require.NoError(t, err, configured)
			require.Equal(t, "s3://bucket/dead", target.String())
			require.Equal(t, "region=eu-west-1", target.Location.Query)
		}
		dead := accountID + "/blobServices/default/containers/dead"
		for _, row := range []struct{ resource, container, field, says string }{
			{accountID, "other", "blobContainerName", "--dead-letter-container mystorage/other=URL"},
			{accountID, "", "blobContainerName", "3 to 63"},
			{accountID, "../x", "blobContainerName", `3 to 63 letters, digits and '-', not "../x"`},
			{accountID + "/blobServices/default/containers/bad_name", "", "resourceId", `not "bad_name"`},
			{dead, "other", "blobContainerName", "must be absent or dead"},
			{"mystorage", "dead", "resourceId", "resource id"},
			{"", "dead", "resourceId", "resource id"},
		} {
			_, err := l.Resolve(properties{ResourceID: row.resource, BlobContainerName: row.container})
			wrong := requireField(t, err, "deadLetterDestination.properties."+row.field)
			require.Contains(t, wrong.Message, row.says)
		}
	}
}

func TestInvalidContainers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "mystorage/dead", "mystorage=s3://b", "my_storage/dead=s3://b", "mystorage/dead=", "mystorage/dead=/tmp",
		"mystorage/dead/x=s3://b", "=s3://b",
	} {
		var l endpointconf.ExportLocations
		require.Error(t, l.AddContainer(text), text)
		require.Empty(t, l.Containers)
	}
	var l endpointconf.ExportLocations
	require.ErrorContains(t, l.AddContainer("mystorage/bad_name=s3://b"), `not "bad_name"`)
}

func TestDeadLetterPath(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 23, 4, 5, 0, time.FixedZone("", -3600))
	require.Equal(t, "BILLING/2026/1/3/0/x.json", endpointconf.DeadLetterPath("BILLING", at, "x"),
		"UTC, without leading zeros")
}

func TestExportPause(t *testing.T) {
	t.Parallel()
	for tries, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute,
		1000: 5 * time.Minute,
	} {
		require.Equal(t, want, endpointconf.ExportPause(tries), "%d", tries)
	}
}
