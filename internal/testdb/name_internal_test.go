package testdb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDatabaseName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "t7_testpublish_an_event__of_1_mb", databaseName("TestPublish/an_event,_of_1_MB", 7))
	require.LessOrEqual(t, len(databaseName("Test"+string(make([]byte, 500)), 1<<40)), 63)
}
