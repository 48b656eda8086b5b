package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Dead letters are listed, shown, redelivered and purged one by one.
func TestDeadletterVerbs(t *testing.T) {
	t.Parallel()
	h, _ := billing(t)
	ids := h.deadLetters(4)
	require.Regexp(t,
		`(?s)^ID +DEAD-LETTERED +TYPE .*\n`+ids[3]+
			` .* orders +billing +open +MaxDeliveryAttemptsExceeded +- +503 +30 +e-3 +-\n`+ids[2],
		h.line(0, "deadletter list"))
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(h.line(0, "deadletter list --subject-prefix orders/ --event-id e-1 "+
		"--from 2024-01-01T00:00:00Z -o json")), &list))
	require.Len(t, list, 1)
	require.Equal(t, ids[1], list[0]["deadLetterId"])
	require.Regexp(t, `(?m)^event +\{"id":"e-1"\}$`, h.line(0, "deadletter show "+ids[1]))
	require.Contains(t, h.line(0, "deadletter show -o json "+ids[1]), `"event": {`)

	require.Regexp(t, `^`+ids[0]+` +redelivered as delivery \d+\n$`, h.line(0, "deadletter redeliver "+ids[0]))
	require.Regexp(t, `was redelivered already, at .*; --again redelivers it once more`,
		h.line(1, "deadletter redeliver "+ids[0]))
	mixed := h.run(1, "deadletter", "redeliver", ids[0], ids[1])
	require.Contains(t, mixed.stdout, ids[1], "a rejected one does not prevent the others")
	h.line(0, "deadletter redeliver --again --to-subscription billing --to-topic orders "+ids[0])
	require.Equal(t, "2 dead letters match.\n", h.line(0, "deadletter redeliver --all --dry-run"),
		"those that were redelivered are left alone")
	require.Equal(t, ids[3]+"  purged\n", h.line(0, "deadletter purge --yes "+ids[3]))
	require.Equal(t, int64(3), one[int64](h, "SELECT count(*) FROM postrider.deliveries"))
	require.Equal(t, int64(3),
		one[int64](h, "SELECT count(*) FROM postrider.audit WHERE actor = 'admin' AND action = 'dead_letter_redelivered'"))
}

// A bulk verb waits for its operation, or prints its id. A file has the ids, and an operation that counts another
// number than expected changes nothing.
func TestBulkVerbs(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("orders")
	h.subscribe("orders", "billing", "")
	h.pause()
	ids := h.deadLetters(6)
	h.Exec(t, "SELECT postrider.redeliver('"+ids[0]+"')")
	file := writtenFile(t, strings.Join(ids[:4], "\n")+"\n"+ids[0]+"\n")
	of := " --ids-from " + file
	past := "event redeliver --topic orders --to billing --from 2024-01-01T00:00:00Z "
	for i := range 3 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	for _, row := range []struct {
		code       int
		line, says string
	}{
		{0, "deadletter redeliver --dry-run" + of, "^3 dead letters match.\n$"},
		{1, "deadletter redeliver --expected-count 4" + of, "expected 4, found 3; nothing was changed"},
		{0, "deadletter redeliver --expected-count 3" + of, "done, 3 of 3 redelivered, 0 skipped, 0 failed."},
		{0, "deadletter redeliver --again" + of, "4 of 4 redelivered"},
		{0, "deadletter purge --yes" + of, "4 of 4 purged"},
		{2, "deadletter purge --all" + of, "not both"},
		{2, "delivery cancel" + of, "not the id of a delivery"},
		{0, "delivery cancel --topic orders --dry-run", "^11 pending deliveries match.\n$"},
		{1, "delivery retry-now --topic orders --state pending", ", 0 of 11 retried, 0 skipped, 11 failed"},
		{0, "delivery cancel --hold paused --yes", ", 11 of 11 canceled, 0 skipped, 0 failed"},
		{0, past + "--dry-run", `^[0-9]+ past events? match(es)?\.\n$`},
		{0, past + "--dry-run -o json", `"atLeast": false`},
		{0, past + "--no-wait", "^Operation [0-9a-f-]+: (running|done)"},
	} {
		require.Regexp(t, row.says, h.line(row.code, row.line), row.line)
	}
	require.Equal(t, int64(2), one[int64](h, "SELECT count(*) FROM postrider.dead_letters"))
}

// Dead letters that are not open are shown on request, and resolved ones can be opened again.
func TestResolve(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	h.topic("orders")
	h.subscribe("orders", "billing", "")
	h.pause()
	ids := h.deadLetters(4)
	require.Equal(t, ids[0]+"  resolved\n", h.line(0, "deadletter resolve {"+strings.ToUpper(ids[0])+"} --note refunded"))
	require.Equal(t, ids[1]+"  resolved\n", h.line(0, "deadletter resolve urn:uuid:"+ids[1]))
	h.line(0, "deadletter reopen "+ids[1])
	require.Regexp(t, "(?m)^note +refunded$", h.line(0, "deadletter show "+ids[0]))
	lines := func(of string) int { return strings.Count(h.line(0, "deadletter list"+of), "\n") - 1 }
	require.Equal(t, []int{3, 1, 4}, []int{lines(""), lines(" --state resolved"), lines(" --state all")})
	require.Equal(t, "Dead letter "+ids[0]+" is open.\n", h.line(0, "deadletter reopen "+ids[0]))
	require.Regexp(t, ", 4 of 4 resolved, 0 skipped, 0 failed", h.line(0, "deadletter resolve --all"))
	require.Zero(t, lines(""))
	require.Contains(t, h.line(2, "deadletter purge --state all"), "choose dead letters with ids")
	require.Contains(t, h.line(0, "deadletter purge --all --dry-run"), "4 dead letters match")
	require.Contains(t, h.line(0, "deadletter purge --topic orders --state all --dry-run"), "4 dead letters match")
	require.Contains(t, h.line(0, "deadletter redeliver --topic orders --state all --again --dry-run"),
		"4 dead letters match")
}

// An ended delivery is sent again; to an event subscription that the event did not match after a confirmation.
func TestEventRedeliver(t *testing.T) {
	t.Parallel()
	h, key := billing(t)
	h.publish("orders", key, order("o-1", 1))
	h.subscribe("orders", "later", "")
	event := "event redeliver " + one[string](h, "SELECT system_id::text FROM postrider.events")
	require.Contains(t, h.line(1, event+" --to billing"), "is pending")
	h.Exec(t, "SELECT postrider.cancel(delivery_id) FROM postrider.deliveries")
	require.Regexp(t, `^Redelivered as delivery \d+\.\n$`, h.line(0, event+" --to billing"))
	require.Contains(t, h.line(2, event+" --to later"), "--yes")
	require.Regexp(t, `^Redelivered as delivery \d+\.\n$`, h.line(0, event+" --to later --yes"))
	require.Contains(t, h.line(2, event+" --to billing --from 1h"), "name either an event, or --topic and --from")
	require.Contains(t, h.line(2, "event redeliver --to billing --topic orders"), "name an event, or --topic and --from")
}

// An operation that has not ended can be canceled.
func TestOperationsAreCanceled(t *testing.T) {
	t.Parallel()
	h, _ := billing(t)
	h.deadLetters(2)
	require.Regexp(t, `^Operation \S+: running, (counting, \d so far|0 of 2 redelivered, 0 skipped, 0 failed).\n$`,
		h.line(0, "deadletter redeliver --all --rate 5 --no-wait"))
	operation := h.object("deadletter", "purge", "--yes", "--last-status", "503", "--state", "all", "--no-wait")
	require.Equal(t, []any{"purge", "running", "admin"},
		[]any{operation["kind"], operation["state"], operation["startedBy"]})
	id := operation["operationId"].(string)
	require.Equal(t, "Operation "+id+" was canceled.\n", h.line(0, "operation cancel "+id))
	require.Contains(t, h.line(0, "operation cancel "+id), "had already ended")
}

func TestDeadletterExport(t *testing.T) {
	t.Parallel()
	h, _ := billing(t)
	h.deadLetters(2)
	const event = `{"specversion":"1.0","id":"e-1","source":"/shop","type":"shop.order","data":{"total":1e999,"a":1,` +
		`"a":2,"c":"\u009b"}`
	h.Exec(t,
		`UPDATE postrider_internal.dead_letters SET schema = 'CloudEventSchemaV1_0', body = convert_to($1::text, 'UTF8')
		WHERE event_id = 'e-1'`, strings.NewReplacer(`\u009b`, "\u009b", `"data":`, "\n\t\"data\":").Replace(event)+"\n}")
	records := h.run(0, "deadletter", "export")
	require.Empty(t, records.stderr, "it is not a terminal")
	lines := strings.Split(strings.TrimSuffix(records.stdout, "\n"), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], event+`,"deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":30,`)

	rows := strings.Split(h.line(0, "deadletter export --format rows --topic orders --subscription billing --reason "+
		"MaxDeliveryAttemptsExceeded"), "\n")
	require.Len(t, rows, 3)
	var row map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(rows[1]), &row))
	require.JSONEq(t, `"e-1"`, string(row["event_id"]))
	require.Equal(t, event+"}", string(row["body"]))
	columns := one[[]string](h, "SELECT array_agg(column_name::text) FROM information_schema.columns "+
		"WHERE table_schema = 'postrider' AND table_name = 'dead_letters'")
	for name := range row {
		require.Contains(t, columns, name, "it is called as in the view")
	}
	require.Contains(t, h.line(1, "deadletter export --topic other"), `topic "other" does not exist`)
	for _, filter := range []string{"--until 2020-01-01T00:00:00Z", "--from 2120-01-01T00:00:00Z"} {
		require.Empty(t, h.line(0, "deadletter export "+filter))
	}

	directory := t.TempDir()
	file := filepath.Join(directory, "dead.ndjson")
	for _, output := range []string{file, "file://" + file} {
		require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
		require.Empty(t, h.run(0, "deadletter", "export", "-o", output).stdout)
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(written), "\n"), output)
	}
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half done is left")
}

func TestDeadletterEditAndPatch(t *testing.T) {
	h, _ := billing(t)
	h.Exec(t, "UPDATE postrider_internal.topics SET input_schema = 'EventGridSchema'")
	ids := h.deadLetters(4)
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	run := func(code int, args ...string) result { return h.run(code, append([]string{"deadletter"}, args...)...) }
	const event = `{"id":"e-0",  "eventType":"T","subject":"<s>","eventTime":"2026-01-01T00:00:00Z","data":1e400}`
	edited := run(0, "edit", ids[0], "--yes", "--event", file("event.json", event+"\n"))
	require.Regexp(t, `^Redelivered as delivery \d+\.\n$`, edited.stdout)
	require.Contains(t, edited.stderr, "  /data: (none) -> 1e400\n")
	require.Equal(t, event, one[string](h, "SELECT body_text FROM postrider.events WHERE edit IS NOT NULL"),
		"byte for byte")
	t.Setenv("EDITOR", "false")
	require.Contains(t, run(1, "edit", ids[0]).stderr, "use --again", "before the editor opens")
	require.Contains(t, run(1, "edit", ids[1], "--event", file("wrong.json", "{\n x}"), "--yes").stderr,
		"line 2, column 2")
	require.Contains(t, run(2, "edit", ids[1], "--event", file("event.json", event)).stderr, "add --yes")
	t.Setenv("EDITOR", "true")
	require.Contains(t, run(1, "edit", ids[1], "--yes").stderr, "nothing was changed")

	// First no JSON, then an invalid event, then a valid one: the editor opens again with the reason.
	editor := file("editor", `#!/bin/sh
cp "$1" "`+folder+`/seen.$(ls "`+folder+`" | grep -c seen)"
case $(ls "`+folder+`" | grep -c seen) in
1) echo '{"id":' > "$1" ;;
2) echo '{"id":"e-1"}' > "$1" ;;
*) echo '`+strings.Replace(event, "e-0", "e-1", 1)+`' > "$1" ;;
esac
`)
	const stored = "{ \"id\" :\t\"e-1\",\n\"data\":{\"<a>\":\"\\u00e9 &\", \"n\":123456789012345678901234567890.10}}"
	h.Exec(t, "UPDATE postrider_internal.dead_letters SET body = $2 WHERE id = $1", ids[1], []byte(stored))
	t.Setenv("EDITOR", "false")
	t.Setenv("VISUAL", editor)
	require.Contains(t, run(0, "edit", ids[1], "--yes").stdout,
		"Redelivered")
	seen := func(n string) string {
		text, err := os.ReadFile(filepath.Join(folder, "seen."+n))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, stored+"\n", seen("0"), "byte for byte")
	require.Equal(t, "# line 2, column 1: the text ends too early\n{\"id\":\n", seen("1"))
	require.Equal(t, "# event.subject: is required\n{\"id\":\"e-1\"}\n", seen("2"))

	show := file("show", "#!/bin/sh\ncp \"$1\" '"+folder+"/formatted'\n")
	t.Setenv("EDITOR", show)
	t.Setenv("VISUAL", "")
	opened := run(1, "edit", ids[1], "--format", "--again", "--yes")
	require.Contains(t, opened.stderr, "nothing was changed")
	formatted, err := os.ReadFile(filepath.Join(folder, "formatted"))
	require.NoError(t, err)
	require.Contains(t, string(formatted), "{\n  \"id\": \"e-1\",\n  \"data\": {\n")

	patch := file("patch.json", `{"eventType":"T","subject":"s","eventTime":"2026-01-01T00:00:00Z","data":{"n":1e400}}`)
	for line, says := range map[string]string{
		"--topic orders --dry-run --merge-patch " + patch:         "2 events changed, 0 unchanged.\n",
		"--dry-run --topic orders --merge-patch " + patch:         "  /data: (none) -> {\"n\":1e400}\n",
		"--topic orders --dry-run --again --merge-patch " + patch: "4 events changed, 0 unchanged.\n",
	} {
		require.Contains(t, h.line(0, "deadletter patch "+line), says)
	}
	require.Contains(t, h.line(0, "deadletter patch --all --no-wait --merge-patch "+patch), "Operation ")
	require.Contains(t, h.line(2, "deadletter patch --all"), "--merge-patch")
	require.Contains(t, h.line(2, "deadletter patch --merge-patch "+patch), "choose dead letters with ids, filters")
}
