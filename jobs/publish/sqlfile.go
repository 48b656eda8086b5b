package publish

import (
	"embed"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string, without ...string) string {
	return postgres.SQLFile(sqlFiles, name, without...)
}
