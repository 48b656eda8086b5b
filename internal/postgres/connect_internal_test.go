package postgres

import (
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A connection that failed in several ways, with and without TLS, has one reason.
func TestConnectError(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), "postgres://anna@127.0.0.1:1/shop?sslmode=prefer")
	err = ConnectError(err)
	require.EqualError(t, err, "connect to the database: no connection to 127.0.0.1:1: connection refused; check that "+
		"PostgreSQL runs there, and the database URL")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = pgx.Connect(t.Context(), "postgres://anna@127.0.0.1:1,127.0.0.1:2/shop")
	require.ErrorContains(t, ConnectError(err), "127.0.0.1:2", "each address has its reason")
}

func TestReadOnlyErrorQuotesNames(t *testing.T) {
	t.Parallel()
	const want = `ALTER ROLE "Shop ""1""" IN DATABASE "a""b" RESET default_transaction_read_only`
	require.ErrorContains(t, newReadOnlyError(false, "database user", `Shop "1"`, `a"b`), want)
}
