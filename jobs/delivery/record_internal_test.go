package delivery

import (
	"testing"

	"postrider/internal/testdb"
)

// The files are T3 and its variants as they are sent, for reviewers: with what they include.
func TestStatementsOfT3(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"record.sql", "record_ends.sql", "record_whole.sql"} {
		testdb.Golden(t, name, sqlFile(name))
	}
}
