package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// healthCheck is the health check of the image.
var healthCheck = regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD \["/usr/local/bin/postrider", (.*)\]$`)

// The image's health is the process's, whatever it lacks: who restarts what is unhealthy must not restart nodes that
// wait for their database. It finds a node that speaks TLS by the node's own settings.
func TestHealthOfAContainer(t *testing.T) {
	t.Parallel()
	check := healthCheck.FindStringSubmatch(fromRoot(t, "Dockerfile"))
	require.Len(t, check, 2)
	var args []string
	require.NoError(t, json.Unmarshal([]byte("["+check[1]+"]"), &args))
	db, files := migratedDatabase(t), newTLSFiles(t)
	env := []string{"POSTRIDER_TLS_CERT=" + files.cert, "POSTRIDER_TLS_KEY=" + files.key}
	n := startNodeWith(t, append(serveEnv(db), env...))
	env = append(env, "POSTRIDER_LISTEN="+strings.TrimPrefix(n.api, "https://"))
	live, ready := func() result { return postrider(t, env, args...) }, func() result { return postrider(t, env, "ready") }
	require.Zero(t, live().code, live().stderr)
	require.Zero(t, ready().code, ready().stderr)
	for _, lack := range []struct{ breaks, repairs, says string }{
		{
			"UPDATE postrider_internal.encryption_keys SET key_id = 'another-' || key_id",
			"UPDATE postrider_internal.encryption_keys SET key_id = replace(key_id, 'another-', '')",
			"another encryption key",
		},
		{
			"ALTER SCHEMA postrider_internal RENAME TO elsewhere", "ALTER SCHEMA elsewhere RENAME TO postrider_internal",
			"run postrider migrate up",
		},
	} {
		db.exec(lack.breaks)
		eventually(t, "it is not ready", func() bool { return ready().code == 1 })
		require.Contains(t, ready().stderr, "not ready: ")
		require.Contains(t, ready().stderr, lack.says)
		require.NotContains(t, ready().stderr, "127.0.0.1")
		require.Zero(t, live().code, live().stderr)
		db.exec(lack.repairs)
		eventually(t, "it is ready again", func() bool { return ready().code == 0 })
	}
	n.stop()
	require.Equal(t, 1, live().code)
	require.Contains(t, live().stderr, "not alive")
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	t.Parallel()
	analyze := tool(t, "systemd-analyze", "systemd")
	unit := strings.ReplaceAll(fromRoot(t, "deploy/systemd/postrider.service"), "/usr/local/bin/postrider", program)
	file := filepath.Join(t.TempDir(), "postrider.service")
	require.NoError(t, os.WriteFile(file, []byte(unit), 0o600))
	out, err := exec.Command(analyze, "verify", "--recursive-errors=no", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "postrider.service", "nothing in it is unknown")
}
