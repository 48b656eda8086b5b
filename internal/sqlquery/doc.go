// Package sqlquery runs the SQL of users with the rights of postrider_reader, and stores their queries.
//
// A query cannot write, and cannot reach another user's query: it has its own connection and login role, a read-only
// transaction that is always rolled back, and a cursor, which accepts one SELECT, VALUES, TABLE or WITH statement.
// Before it runs, PostgreSQL resolves its names, and what is not allowed is rejected: some functions outlast a
// cancellation, or have effects that a rollback does not undo.
package sqlquery

import (
	"embed"

	"postrider/internal/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sql = postgres.SQLFiles(sqlFiles)
