package e2e

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var profilesURL = regexp.MustCompile(`"msg":"serving profiles","url":"(http://127\.0\.0\.1:[0-9]+)/debug/pprof/"`)

func TestDebugListener(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	for _, role := range []string{"all", "worker"} {
		n := startNode(t, db, "--debug-listen", ":0", "--role", role)
		found := profilesURL.FindStringSubmatch(n.stderr.String())
		require.NotNil(t, found, "an address without a host is on loopback")
		debug := found[1]
		for path, content := range map[string]string{
			"/debug/pprof/":                    "full goroutine stack dump",
			"/debug/pprof/goroutine?debug=1":   "postrider/jobs",
			"/debug/pprof/heap":                "\x1f\x8b", // a compressed profile
			"/debug/pprof/profile?seconds=1":   "\x1f\x8b",
			"/debug/pprof/trace?seconds=0.001": "go 1.",
			"/metrics":                         "\ngo_memory_classes_total_bytes ",
		} {
			status, text, err := call(t.Context(), http.MethodGet, debug+path, "")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "%s: %s", path, text)
			require.Contains(t, text, content, path)
		}
		status, text, err := call(t.Context(), http.MethodGet, debug+"/debug/pprof/cmdline", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, status, "flags may have secrets: "+text)

		n.manage(http.StatusNotFound, http.MethodGet, "/debug/pprof/", "")
		n.manage(http.StatusNotFound, http.MethodGet, "/debug/pprof/heap", "")
		require.Zero(t, valueOf(n.scrape(), "go_memory_classes_total_bytes"))
		code := n.stop()
		require.Zero(t, code)
	}
}
