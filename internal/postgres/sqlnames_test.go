package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// SQLFiles finds a statement by its name when it is used. So a test must find a wrong name, and a file without a use.
func TestStatementsHaveFiles(t *testing.T) {
	t.Parallel()
	calls, includes := regexp.MustCompile(`(?:\bsql\(|\(r, )"([a-z_]+)"`), regexp.MustCompile(`-- ([a-z_]+)\.sql\n`)
	for _, folder := range []string{"access", "catalog", "query"} {
		used := map[string]bool{}
		for pattern, find := range map[string]*regexp.Regexp{"*.go": calls, "sql/*.sql": includes} {
			sources, err := filepath.Glob(filepath.Join("..", folder, pattern))
			require.NoError(t, err)
			require.NotEmpty(t, sources, folder)
			for _, source := range sources {
				text, err := os.ReadFile(source)
				require.NoError(t, err)
				for _, name := range find.FindAllStringSubmatch(string(text), -1) {
					require.FileExists(t, filepath.Join("..", folder, "sql", name[1]+".sql"), source)
					used[name[1]], used[name[1]+"_end"] = true, true
				}
			}
		}
		files, err := filepath.Glob(filepath.Join("..", folder, "sql", "*.sql"))
		require.NoError(t, err)
		for _, file := range files {
			require.True(t, used[strings.TrimSuffix(filepath.Base(file), ".sql")], "%s is not used", file)
		}
	}
}
