package sqlquery_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Migrate)) }

var testKey = testnode.Key

// bundle is a migrated database with its login roles.
type bundle struct {
	url    string
	pool   *pgxpool.Pool
	sealer *postgres.Sealer
	runner *sqlquery.Runner
}

func setup(t *testing.T, o sqlquery.Options) *bundle {
	t.Helper()
	b := &bundle{url: testdb.Clone(t)}
	var err error
	b.pool, err = postgres.OpenPool(t.Context(), b.url, 8)
	require.NoError(t, err)
	t.Cleanup(b.pool.Close)
	b.sealer, err = postgres.NewSealer(testKey)
	require.NoError(t, err)
	db := postgres.NewDB(b.pool)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), db, db, b.sealer))
	b.runner, err = sqlquery.NewRunner(db, b.sealer, o)
	require.NoError(t, err)
	return b
}
