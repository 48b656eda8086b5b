package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadOnlyErrorQuotesNames(t *testing.T) {
	t.Parallel()
	const want = `ALTER ROLE "Shop ""1""" IN DATABASE "a""b" RESET default_transaction_read_only`
	require.ErrorContains(t, newReadOnlyError(false, "database user", `Shop "1"`, `a"b`), want)
}
