package postgres_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func TestSQLFile(t *testing.T) {
	t.Parallel()
	folder := fstest.MapFS{
		"sql/list.sql": {Data: []byte("-- Lists things.\nSELECT -- columns.sql\n  FROM things\n" +
			" WHERE id > @id -- a place\n LIMIT 1\n")},
		"sql/columns.sql": {Data: []byte("-- The columns of a thing, see list.sql.\nid, name\n")},
	}
	require.Equal(t, "SELECT\nid, name\n  FROM things\n WHERE id > @id\n LIMIT 1\n",
		postgres.SQLFile(folder, "list.sql"))
	require.Equal(t, "SELECT\nid, name\n  FROM things\n WHERE id > $2\n LIMIT 1\n",
		postgres.SQLFile(folder, "list.sql", "name", "id"))
	require.Panics(t, func() { postgres.SQLFile(folder, "list.sql", "name") })
	require.Panics(t, func() { postgres.SQLFile(folder, "none.sql") })
}
