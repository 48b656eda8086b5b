package cli_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A topic that is exported by one service and applied at another is the same there, with its keys and secrets.
func TestTopicExport(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	declared, err := os.ReadFile("config/testdata/apply.yaml")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(declared), "ENDPOINT", a.url+"/healthz")
	a.run(0, "apply", "-f", writtenFile(t, text), "--yes")
	a.run(0, "subscription", "create", "applied", "queue", "--delivery-mode", "Queue", "--max-delivery-count", "3")
	a.run(0, "subscription", "update", "applied", "two", "--signing", "true", "--description", "Invoices")

	exported := a.run(0, "topic", "export", "applied").stdout
	secret := a.object("subscription", "signing-secrets", "applied", "two")["value"].([]any)[0].(map[string]any)["secret"]
	for _, part := range []string{"?code=secret", "s3cret", secret.(string), `"name": "applied"`, "9007199254740993"} {
		require.Contains(t, exported, part)
	}
	file := writtenFile(t, exported)
	require.Contains(t, b.run(0, "apply", "-f", file, "--yes").stdout, "created subscription applied/two\n")
	require.Equal(t, a.object("topic", "keys", "applied"), b.object("topic", "keys", "applied"))
	require.Equal(t, exported, b.run(0, "topic", "export", "applied").stdout)
	for _, h := range []*host{a, b} {
		require.Contains(t, h.run(0, "apply", "-f", file, "--dry-run").stdout, "(0 to create, 0 to change, 0 to delete, 5 "+
			"unchanged)")
	}

	// Secrets that are never shown are named, and apply requires them.
	a.manage(http.StatusCreated, http.MethodPut, "/v1/topics/applied/subscriptions/token", `{
		"endpointUrl":"https://billing.example.com/events","endpointValidation":"skip",
		"oauth2":{"tokenUrl":"https://billing.example.com/token","clientId":"c","clientSecret":"hidden"}}`)
	done := a.run(0, "topic", "export", "applied")
	require.Equal(t, "not exported: event subscription token: oauth2.clientSecret\n", done.stderr)
	require.NotContains(t, done.stdout, "hidden")
	rejected := b.run(2, "apply", "-f", writtenFile(t, done.stdout), "--yes")
	require.Contains(t, rejected.stderr, "oauth2.clientSecret")
}
