package publish

import (
	"testing"

	"postrider/internal/testdb"
)

// The files are T1 and its variant as they are sent, for reviewers: with what they include.
func TestStatementsOfT1(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"publish", "publish_plain"} {
		testdb.Golden(t, name+".sql", sqlFile(name))
	}
}
