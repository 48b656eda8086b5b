package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// downloaded has the dead letters of ../event/testdata as a container that was downloaded.
func downloaded(t *testing.T) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for at, name := range map[string]string{
		"ORDERS/BILLING/2026/3/4/5/a.json":     "eventgrid-several.json",
		"ORDERS/BILLING/2026/3/4/6/b.json":     "cloudevents.json",
		"BILLING/2026/3/4/6/c.JSON":            "cloudevents-trailing-comma.json",
		"BILLING/2026/12/31/23/d.json":         "namespace-binary.json",
		"SHIPPING/2026/3/4/6/e.json":           "eventgrid.json",
		"other/lines.ndjson":                   "lines.ndjson",
		"BILLING/2026/12/31/23/not-read.cache": "custom.json",
	} {
		text, err := os.ReadFile("../event/testdata/deadletters/" + name)
		require.NoError(t, err)
		file := filepath.Join(directory, at)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(directory, "empty.json"), []byte(" \n"), 0o600))
	return directory
}

// Files are imported once. What cannot be imported is listed with its place and the reason.
func TestDeadletterImport(t *testing.T) {
	t.Parallel()
	h, _ := billing(t)
	directory := downloaded(t)
	run := func(code int, flags ...string) string {
		r := h.run(code, append([]string{"deadletter", "import", directory, "--topic", "orders"}, flags...)...)
		return strings.ReplaceAll(r.stdout+r.stderr, directory+"/", "")
	}
	const rejected = `BILLING/2026/3/4/6/c.JSON [0]: it is not JSON: expected a member's name in double quotes, at line ` +
		"5, column 1\n" +
		`SHIPPING/2026/3/4/6/e.json [0]: topic "orders" has no event subscription "SHIPPING", which the path names; pass ` +
		"--subscription\n" +
		"empty.json [0]: the file is empty\n"
	none := func(i string) string {
		return "other/lines.ndjson [" + i + "]: the path names no event subscription, as " +
			"SUBSCRIPTION/2026/11/22/9/GUID.json does; pass --subscription\n"
	}
	const failed = "postrider: 6 dead letters could not be imported\n"
	list := rejected + none("0") + none("1") + none("2") + failed
	require.Equal(t, "7 files: 5 would be imported, 0 already imported, 6 rejected.\n"+list, run(1, "--dry-run"))
	require.Zero(t, one[int64](h, "SELECT count(*) FROM postrider.dead_letters"))
	require.Equal(t, "7 files: 5 imported, 0 already imported, 6 rejected.\n"+list, run(1))
	require.Equal(t, "7 files: 0 imported, 5 already imported, 6 rejected.\n"+list, run(1))
	require.Equal(t, "BILLING/2026/12/31/23/d.json 0, BILLING/2026/3/4/5/a.json 0, BILLING/2026/3/4/5/a.json 1, "+
		"BILLING/2026/3/4/5/a.json 2, BILLING/2026/3/4/6/b.json 0", one[string](h, "SELECT string_agg(imported_from || ' ' "+
		"|| imported_index, ', ' ORDER BY imported_from, imported_index) FROM postrider.dead_letters"))

	var done map[string]any
	h.subscribe("orders", "archive", "")
	r := h.run(1, "deadletter", "import", directory, "--topic", "orders", "--subscription", "archive", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &done))
	require.Equal(t, []any{4.0, 5.0, 2}, []any{done["imported"], done["alreadyImported"], len(done["rejected"].([]any))},
		"what has been imported is not imported for another event subscription")
	require.Equal(t, "SubscriptionFile", regexp.MustCompile(`^lines\.ndjson#sha256-[0-9a-f]{64}$`).
		ReplaceAllString(one[string](h, "SELECT min(imported_from) FROM postrider.dead_letters WHERE event_id = 'o-8'"),
			"SubscriptionFile"))
}

func TestDeadletterImportRejects(t *testing.T) {
	t.Parallel()
	h, _ := billing(t)
	letter := `{"specversion":"1.0","id":"1","source":"/s","type":"t","deadletterreason":"R","deliveryattempts":1}`
	file := writtenFile(t, letter)
	for _, row := range []struct {
		code       int
		line, says string
	}{
		{2, "deadletter import - --topic orders", "standard input has no path that names an event subscription"},
		{2, "deadletter import missing.json --topic orders", "missing.json: no such file"},
		{2, "deadletter import s3://dead --topic orders", "must begin with azblob:// or https://"},
		{2, "deadletter import https://account.blob.core.windows.net --topic orders", "must name an account and a container"},
		{2, "deadletter import https://a.blob.core.windows.net/dead?sig=x --topic orders", "AZURE_STORAGE_SAS_TOKEN"},
		{2, "deadletter import " + file + " --topic orders --subscription none", `no event subscription "none"`},
		{1, "deadletter import " + file + " --topic none --subscription billing", `topic "none" does not exist`},
		{1, "deadletter import " + t.TempDir() + " --topic orders", "no files were found that end with .json"},
		{1, "deadletter import " + file + " --topic orders", `file.json [0]: the path names no event subscription`},
	} {
		require.Contains(t, h.line(row.code, row.line), row.says, row.line)
	}
	// The server rejects one of several. The others are imported.
	lines := strings.Join([]string{
		letter, strings.Replace(letter, `"id":"1"`, `"id":"2","UPPER":1`, 1), strings.Replace(letter, `"1"`, `"3"`, 1), `{}`,
	}, "\n")
	r := typed(t, strings.NewReader(lines), h.reached([]string{
		"deadletter", "import", "-", "--topic", "orders", "--subscription", "billing",
	})...)
	require.Equal(t, "1 file: 2 imported, 0 already imported, 2 rejected.\n"+
		"- [1]: UPPER: an extension attribute's name must be 1 to 20 characters of a-z and 0-9\n"+
		"- [3]: no dead letter: it has none of the members deadLetterReason, deadletterreason and deadLetterProperties\n",
		r.stdout)
	require.Equal(t, 1, r.code)
}

// What is exported can be imported, and an imported dead letter is redelivered with its bytes.
func TestDeadletterImportIsRedelivered(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	received := make(chan string, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))
	t.Cleanup(endpoint.Close)
	h.topic("orders")
	h.subscribe("orders", "billing", endpoint.URL)
	const event = `{ "specversion":"1.0","id":"1","source":"/s", "type":"t","data":{"n":1.50e2,"text":"\u00e9\u0000/\/"}}`
	file := writtenFile(t, strings.TrimSuffix(event, "}")+`,"deadletterreason":"Odd reason","deliveryattempts":0}`)
	h.line(0, "deadletter import "+file+" --topic orders --subscription billing")
	id := one[string](h, "SELECT dead_letter_id::text FROM postrider.dead_letters")
	require.Regexp(t, `(?m)^imported from +file\.json#sha256-`, h.line(0, "deadletter show "+id))
	require.Contains(t, h.line(0, "deadletter list"), "Odd reason")
	exported := h.line(0, "deadletter export")
	h.line(0, "deadletter redeliver "+id)
	require.Equal(t, event, <-received)

	again := writtenFile(t, strings.TrimSpace(exported))
	require.Contains(t, h.line(0, "deadletter import "+again+" --topic orders --subscription billing"),
		"0 imported, 1 already imported")
}

// A file that cannot be read is listed, and does not end the import of others.
func TestDeadletterImportOfUnreadableFiles(t *testing.T) {
	h, _ := billing(t)
	const letter = `{"specversion":"1.0","id":"%s","source":"/s","type":"t","deadletterreason":"R","deliveryattempts":1}`
	azure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/account/dead": // the list
			_, _ = io.WriteString(w, `<EnumerationResults><Blobs><Blob><Name>a.json</Name></Blob><Blob><Name>b.json</Name>`+
				`</Blob><Blob><Name>c.json</Name></Blob></Blobs></EnumerationResults>`)
		case "/account/dead/b.json":
			w.Header().Set("x-ms-error-code", "BlobArchived")
			w.WriteHeader(http.StatusConflict)
		default:
			_, _ = fmt.Fprintf(w, letter, path.Base(r.URL.Path))
		}
	}))
	t.Cleanup(azure.Close)
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	container := "azblob://dead?storage_account=account&protocol=http&domain=" + strings.TrimPrefix(azure.URL, "http://")
	local := filepath.Join(t.TempDir(), "socket.json")
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", local)
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	last := writtenFile(t, fmt.Sprintf(letter, "last"))

	r := h.run(1, "deadletter", "import", container, local, last, "--topic", "orders", "--subscription", "billing")
	require.Regexp(t, `^5 files: 3 imported, 0 already imported, 2 rejected\.
azblob://dead/b\.json \[0\]: the location responded with 409 BlobArchived
`+regexp.QuoteMeta(local)+` \[0\]: open .*socket\.json: .+\n$`, r.stdout)
	require.Equal(t, "postrider: 2 dead letters could not be imported\n", r.stderr)
	require.EqualValues(t, 3, one[int64](h, "SELECT count(*) FROM postrider.dead_letters"))
}
