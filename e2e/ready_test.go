package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// /readyz returns the reason to any client, without details.
func TestReadySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	status := func() (int, string) {
		status, text, err := call(t.Context(), http.MethodGet, n.api+"/readyz", "")
		require.NoError(t, err)
		return status, text
	}
	code, text := status()
	require.Equal(t, http.StatusOK, code, text)
	require.Contains(t, text, `"ready":true`)
	for _, lack := range []struct{ breaks, repairs, says string }{
		{
			"UPDATE postrider_internal.encryption_keys SET key_id = 'another-' || key_id",
			"UPDATE postrider_internal.encryption_keys SET key_id = replace(key_id, 'another-', '')",
			"another encryption key",
		},
		{"ALTER SCHEMA postrider_internal RENAME TO elsewhere", "ALTER SCHEMA elsewhere RENAME TO " +
			"postrider_internal", "run postrider migrate up"},
	} {
		db.exec(lack.breaks)
		eventually(t, lack.says, func() bool { code, text = status(); return code == http.StatusServiceUnavailable })
		require.Contains(t, text, lack.says)
		require.NotContains(t, text, "127.0.0.1")
		db.exec(lack.repairs)
		eventually(t, "it is ready again", func() bool { code, text = status(); return code == http.StatusOK })
	}
}
