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

// An empty variable, as compose passes it on, is none.
func TestEmptyVariablesAreNone(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNodeWith(t, append(serveEnv(db), "POSTRIDER_ALLOW_CIDR=", "POSTRIDER_PUBLIC_URL=",
		"POSTRIDER_TRUSTED_PROXIES=", "POSTRIDER_PREVIOUS_ENCRYPTION_KEYS=", "POSTRIDER_DEAD_LETTER_LOCATION="))
	r := postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Zero(t, r.code, r.stderr)
	n.stop()
	r = postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "not ready")
	require.Equal(t, 2, postrider(t, nil, "ready", "--listen", "nowhere").code)
}

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
	for name, scheme := range map[string]string{"in the clear": "http", "TLS": "https"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, env := migratedDatabase(t), []string(nil)
			if scheme == "https" {
				files := newTLSFiles(t)
				env = []string{"POSTRIDER_TLS_CERT=" + files.cert, "POSTRIDER_TLS_KEY=" + files.key}
			}
			n := startNodeWith(t, append(serveEnv(db), env...))
			address, of := strings.CutPrefix(n.api, scheme+"://")
			require.True(t, of, n.api)
			env = append(env, "POSTRIDER_LISTEN="+address)
			live, ready := func() result { return postrider(t, env, args...) }, func() result {
				return postrider(t, env,
					"ready")
			}
			require.Zero(t, live().code, live().stderr)
			require.Zero(t, ready().code, ready().stderr)

			db.exec("ALTER SCHEMA postrider_internal RENAME TO elsewhere")
			eventually(t, "it is not ready", func() bool { return ready().code == 1 })
			require.Contains(t, ready().stderr, "not ready")
			require.Zero(t, live().code, live().stderr)
			db.exec("ALTER SCHEMA elsewhere RENAME TO postrider_internal")

			n.stop()
			require.Equal(t, 1, live().code)
			require.Contains(t, live().stderr, "not alive")
		})
	}
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
