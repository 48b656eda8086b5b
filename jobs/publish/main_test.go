package publish_test

import (
	"os"
	"testing"

	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Template())) }
