package access

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A statement is found by its name when it is used. So a test must find a wrong name, and a file without a use.
func TestStatementsHaveFiles(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, call := range regexp.MustCompile(`sql\("([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			require.NotPanics(t, func() { sql(call[1]) }, "%s: %s", source, call[1])
			used[call[1]], used[call[1]+"_end"] = true, true
		}
	}
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, part := range regexp.MustCompile(`-- ([a-z_]+)\.sql\n`).FindAllStringSubmatch(string(text), -1) {
			used[part[1]] = true
		}
	}
	for _, file := range files {
		require.True(t, used[strings.TrimSuffix(filepath.Base(file), ".sql")], "%s is not used", file)
	}
}
