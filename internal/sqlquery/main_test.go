package sqlquery_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Template())) }

// queries are a migrated database with its login roles, and what runs queries as them.
type queries struct {
	url    string
	pool   *pgxpool.Pool
	sealer *postgres.Sealer
	runner *sqlquery.Runner
}

func setup(t *testing.T, o sqlquery.Options) *queries {
	t.Helper()
	qs := &queries{url: testdb.Clone(t)}
	var err error
	qs.pool, err = postgres.OpenPool(t.Context(), qs.url, 8)
	require.NoError(t, err)
	t.Cleanup(qs.pool.Close)
	qs.sealer, err = postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	db := postgres.NewDB(qs.pool)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), db, db, qs.sealer))
	qs.runner, err = sqlquery.NewRunner(db, qs.sealer, o)
	require.NoError(t, err)
	return qs
}

// stream runs a query by Stream and returns its columns.
func (qs *queries) stream(ctx context.Context, sql string, row func([]*string) error) ([]sqlquery.Column, error) {
	var found []sqlquery.Column
	err := qs.runner.Stream(ctx, sqlquery.Request{SQL: sql}, func(columns []sqlquery.Column) error {
		found = columns
		return nil
	}, row)
	return found, err
}

// open is a session for many queries.
func (qs *queries) open(t *testing.T) *sqlquery.Session {
	t.Helper()
	session, err := qs.runner.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(session.Close)
	return session
}
