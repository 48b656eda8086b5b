package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The editor is what `make editor` builds from web/editor with the versions of package-lock.json.
func TestEditorIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	command := tool(t, "npm", "npm")
	dir := t.TempDir()
	source, built := filepath.Join(dir, "editor"), filepath.Join(dir, "static")
	require.NoError(t, os.Mkdir(built, 0o755))
	require.NoError(t, os.Mkdir(source, 0o755))
	for _, name := range []string{"editor.js", "package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join("..", "web", "editor", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), content, 0o600))
	}
	for _, args := range [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"run", "build"}} {
		npm := exec.Command(command, args...)
		npm.Dir = source
		out, err := npm.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	got, err := os.ReadFile(filepath.Join(built, "editor.min.js"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("..", "web", "static", "editor.min.js"))
	require.NoError(t, err)
	same := string(got) == string(want) // 390 kB are not worth a difference on the screen
	require.True(t, same, "`make editor` builds it anew")
}
