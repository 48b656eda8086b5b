package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The audit records verbs that change the database as cli, and the service as postrider.
func TestActorsOfTheProgram(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	startNode(t, db)
	const actors = "SELECT coalesce(string_agg(DISTINCT actor, ' ' ORDER BY actor), '') FROM postrider.audit"
	require.Equal(t, "postrider", one[string](db, actors))
	r := postrider(t, db.env(), "apikey", "create", "billing", "--scope", "publish")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "cli postrider", one[string](db, actors))
}
