package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadletterEditAndPatch(t *testing.T) {
	h := newHost(t)
	h.topic("orders")
	h.subscribe("orders", "billing", "http://127.0.0.1:1/")
	h.exec("UPDATE postrider_internal.topics SET input_schema = 'EventGridSchema'")
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
	h.exec("UPDATE postrider_internal.dead_letters SET body = $2 WHERE id = $1", ids[1], []byte(stored))
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
	dry := run(0, "patch", "--topic", "orders", "--merge-patch", patch, "--dry-run").stdout
	require.Contains(t, dry, "2 events changed, 0 unchanged.\n")
	require.Contains(t, dry, "  /data: (none) -> {\"n\":1e400}\n")
	again := run(0, "patch", "--topic", "orders", "--merge-patch", patch, "--dry-run", "--again").stdout
	require.Contains(t, again, "4 events changed, 0 unchanged.\n")
	require.Contains(t, run(0, "patch", "--all", "--merge-patch", patch, "--no-wait").stdout, "Operation ")
	require.Contains(t, run(2, "patch", "--all").stderr, "--merge-patch")
	require.Contains(t, run(2, "patch", "--merge-patch", patch).stderr, "choose dead letters with ids, filters")
	require.Contains(t, run(1, "patch", "--all", "--merge-patch", file("bad.json", `[]`)).stderr,
		"mergePatch must be an object")
}
