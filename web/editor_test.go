package web_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The editor is what `make editor` builds from web/editor with the versions of package-lock.json.
func TestEditorIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("POSTRIDER_CI") != "" {
			require.Fail(t, "npm not found")
		}
		t.Skip("no npm on this machine: the editor is not built")
	}
	dir := t.TempDir()
	source, built := filepath.Join(dir, "editor"), filepath.Join(dir, "static")
	require.NoError(t, os.Mkdir(built, 0o755))
	require.NoError(t, os.Mkdir(source, 0o755))
	for _, name := range []string{"editor.js", "package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join("editor", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), content, 0o600))
	}
	for _, args := range [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"run", "build"}} {
		npm := exec.Command("npm", args...)
		npm.Dir = source
		out, err := npm.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	got, err := os.ReadFile(filepath.Join(built, "editor.min.js"))
	require.NoError(t, err)
	want, err := os.ReadFile("static/editor.min.js")
	require.NoError(t, err)
	same := string(got) == string(want) // 390 kB are not worth a difference on the screen
	require.True(t, same, "`make editor` builds it anew")
}

// LICENSES.txt names every package of the editor with its version.
func TestEditorPackagesHaveLicenses(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("editor/package-lock.json")
	require.NoError(t, err)
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	require.NoError(t, json.Unmarshal(content, &lock))
	licenses, err := os.ReadFile("static/LICENSES.txt")
	require.NoError(t, err)
	named := 0
	for path, each := range lock.Packages {
		name := strings.TrimPrefix(path, "node_modules/")
		if name == "" || strings.Contains(name, "esbuild") { // this package, and what builds it
			continue
		}
		require.Equal(t, "MIT", each.License, name)
		require.Contains(t, string(licenses), name+"@"+each.Version+"\n")
		named++
	}
	require.Greater(t, named, 10)
}
