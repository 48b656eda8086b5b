package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadletterExport(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	h.subscribe("orders", "billing", "")
	h.deadLetters(2)
	h.exec(`UPDATE postrider_internal.dead_letters SET schema = 'CloudEventSchemaV1_0', body = convert_to($1::text, 'UTF8')
		WHERE event_id = 'e-1'`, "{\n \"specversion\":\"1.0\",\"id\":\"e-1\",\"source\":\"/shop\",\"type\":\"shop.order\","+
		"\n\t\"data\":{\"total\": 1e999, \"a\":1, \"a\":2, \"c\":\"\u009b\"}\n}")
	run := func(code int, flags ...string) result {
		t.Helper()
		return h.run(code, append([]string{"deadletter", "export"}, flags...)...)
	}
	records := run(0)
	require.Empty(t, records.stderr, "it is not a terminal")
	lines := strings.Split(strings.TrimSuffix(records.stdout, "\n"), "\n")
	require.Len(t, lines, 2)
	require.NotContains(t, records.stdout, "\u009b")
	require.Contains(t, lines[1], `{"specversion":"1.0","id":"e-1","source":"/shop","type":"shop.order",`+
		`"data":{"total":1e999,"a":1,"a":2,"c":"\u009b"},"deadletterreason":"MaxDeliveryAttemptsExceeded",`+
		`"deliveryattempts":30,`)

	rows := strings.Split(run(0, "--format", "rows", "--topic", "orders", "--subscription", "billing", "--reason",
		"MaxDeliveryAttemptsExceeded").stdout, "\n")
	require.Len(t, rows, 3)
	var row map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(rows[1]), &row))
	require.JSONEq(t, `"e-1"`, string(row["event_id"]))
	require.Equal(t,
		`{"specversion":"1.0","id":"e-1","source":"/shop","type":"shop.order",`+
			`"data":{"total":1e999,"a":1,"a":2,"c":"\u009b"}}`,
		string(row["body"]))
	columns := one[[]string](h, "SELECT array_agg(column_name::text) FROM information_schema.columns "+
		"WHERE table_schema = 'postrider' AND table_name = 'dead_letters'")
	for name := range row {
		require.Contains(t, columns, name, "it is called as in the view")
	}
	require.Empty(t, run(0, "--topic", "other").stdout)
	require.Empty(t, run(0, "--until", "2020-01-01T00:00:00Z").stdout)
	require.Empty(t, run(0, "--from", "2120-01-01T00:00:00Z").stdout)

	directory := t.TempDir()
	file := filepath.Join(directory, "dead.ndjson")
	for _, output := range []string{file, "file://" + file} {
		require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
		require.Empty(t, run(0, "-o", output).stdout)
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(written), "\n"), output)
	}
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half done is left")

	require.Contains(t, run(1, "-o", filepath.Join(directory, "missing", "x")).stderr, "no such file")
	require.Contains(t, run(2, "-o", "gs://bucket/x").stderr, "must begin with file://, s3:// or azblob://")
	require.Contains(t, run(2, "-o", "s3://bucket").stderr, "must name a file in the bucket")
	require.Contains(t, run(2, "--from", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z").stderr,
		"--from must be before --until")
	require.Contains(t, run(2, "--from", "yesterday").stderr, "yesterday")
}
