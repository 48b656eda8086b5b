package delivery

import (
	"testing"

	"postrider/internal/testdb"
)

// The files are T3 and its variants as they are sent, for reviewers: with what they include.
func TestStatementsOfT3(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"record", "record_ends", "record_whole"} {
		testdb.Golden(t, name+".sql", sqlFile(name))
	}
}
