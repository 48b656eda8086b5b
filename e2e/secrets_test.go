package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The cases are in cmd/postrider: TestWeakSecretsAreRejected. A service with one of them does not start.
func TestServeRejectsWeakSecrets(t *testing.T) {
	t.Parallel()
	// In base64, the encryption key of postrider dev is its access key.
	for _, verb := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"keys", "rotate"}} {
		r := postrider(t, []string{
			"POSTRIDER_DATABASE_URL=postgres://nowhere.invalid/x", "POSTRIDER_ENCRYPTION_KEY=" + devAccessKey,
		}, verb...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, "--encryption-key (POSTRIDER_ENCRYPTION_KEY) is the key of postrider dev")
		require.Contains(t, r.stderr, "openssl rand -base64 32")
		require.NotContains(t, r.stderr, devAccessKey)
	}
	r := postrider(t, []string{
		"POSTRIDER_DATABASE_URL=postgres://nowhere.invalid/x", "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey,
		"POSTRIDER_ADMIN_TOKEN=" + devAccessKey,
	}, "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "--admin-token (POSTRIDER_ADMIN_TOKEN) is a secret of postrider dev")
	require.NotContains(t, r.stderr, devAccessKey)
}
