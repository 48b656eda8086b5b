package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func TestReadOnlyErrorQuotesNames(t *testing.T) {
	t.Parallel()
	const want = `ALTER ROLE "Shop ""1""" IN DATABASE "a""b" RESET default_transaction_read_only`
	require.ErrorContains(t, postgres.NewReadOnlyError(false, "database user", `Shop "1"`, `a"b`), want)
}
