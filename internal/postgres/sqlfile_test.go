package postgres_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func TestSQLFiles(t *testing.T) {
	t.Parallel()
	folder := fstest.MapFS{
		"sql/list.sql": {Data: []byte("-- Lists things.\nSELECT -- columns.sql\n  FROM things\n" +
			" WHERE id > @id -- a place\n LIMIT 1\n")},
		"sql/columns.sql": {Data: []byte("-- The columns of a thing, see list.sql.\nid, name\n")},
	}
	statement := postgres.SQLFiles(folder)
	require.Equal(t, "SELECT\nid, name\n  FROM things\n WHERE id > @id\n LIMIT 1\n", statement("list"))
	require.Equal(t, "SELECT\nid, name\n  FROM things\n WHERE id > $2\n LIMIT 1\n", statement("list", "name", "id"))
	require.Panics(t, func() { statement("list", "name") })
	require.Panics(t, func() { statement("none") })
	folder["sql/broken.sql"] = &fstest.MapFile{Data: []byte("SELECT -- none.sql\n")}
	require.Panics(t, func() { postgres.SQLFiles(folder) })
}
