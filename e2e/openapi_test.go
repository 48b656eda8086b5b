package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server/openapi"
)

const (
	// openapiDir has the npm packages that lint the OpenAPI document and generate clients from it, and a program for each
	// client.
	openapiDir = "testdata/openapi"
	// clientGenerator generates the client for Go.
	clientGenerator = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
)

// openapiFile writes the document that a node serves at /openapi.yaml.
func openapiFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(file, openapi.Document, 0o600))
	return file
}

// npmProgram runs a program of an npm package in dir, without a request to its maker, and returns what it printed.
func npmProgram(t *testing.T, dir, node, script string, args ...string) (out string, err error) {
	t.Helper()
	run := exec.Command(node, append([]string{filepath.Join(dir, "node_modules", script)}, args...)...)
	run.Env = append(ownEnvironment(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true",
		"NO_UPDATE_NOTIFIER=1")
	text, err := run.CombinedOutput()
	return string(text), err
}

// TestOpenAPIFilePassesLinters holds the OpenAPI document to the recommended rules of Redocly and Spectral: no errors.
func TestOpenAPIFilePassesLinters(t *testing.T) {
	t.Parallel()
	node, dir := nodePackages(t, openapiDir)
	file := openapiFile(t)
	linters := map[string][]string{
		"@redocly/cli/bin/cli.js": {"lint", "--extends=recommended", file},
		"@stoplight/spectral-cli/dist/index.js": {
			"lint", "--ruleset=" + filepath.Join(openapiDir, "spectral.yaml"), "--fail-severity=error", file,
		},
	}
	for script, args := range linters {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			out, err := npmProgram(t, dir, node, script, args...)
			require.NoError(t, err, out)
		})
	}
}

// TestGeneratedClients: clients that oapi-codegen and openapi-typescript make of the OpenAPI document compile, the
// second one under TypeScript's strict rules, and go from a topic to a redelivered dead letter on a real node.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	node, modules := nodePackages(t, openapiDir)
	var mu sync.Mutex
	met := map[string]int{} // requests by path: the first is rejected for good
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if met[r.URL.Path]++; met[r.URL.Path] == 1 {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(endpoint.Close)
	n := startNode(t, migratedDatabase(t))
	env := append(ownEnvironment(), "URL="+n.api, "TOKEN="+testAdminToken, "ENDPOINT="+endpoint.URL)
	for path, program := range map[string]func(*testing.T) []string{
		"/go": goClient,
		"/ts": func(t *testing.T) []string { return []string{node, typeScriptClient(t, modules, node)} },
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			command := program(t)
			p := startProcess(t, env, command[0], command[1:]...)
			require.Zero(t, p.wait(), p.stderr.String())
			require.Equal(t, "DeadLetterRedelivered true\n", p.stdout.String())
			eventually(t, "the event is redelivered", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return met[path] == 2
			})
		})
	}
}

// goClient generates and builds the client for Go, in a module of its own.
func goClient(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"client.go", "go.mod", "go.sum"} {
		// The suffix keeps them out of this module.
		text := fromRoot(t, "e2e/testdata/openapi/"+name+".txt")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := exec.Command("go", "run", clientGenerator, "-generate", "types,client", "-package", "main",
		"-o", filepath.Join(dir, "api.gen.go"), openapiFile(t)).CombinedOutput()
	require.NoError(t, err, string(out))
	binary := filepath.Join(dir, "client")
	build := exec.Command("go", "build", stripped, "-o", binary, ".")
	build.Dir = dir
	out, err = build.CombinedOutput()
	require.NoError(t, err, string(out))
	return []string{binary}
}

// typeScriptClient generates the types and compiles the client in a folder below the npm packages.
func typeScriptClient(t *testing.T, modules, node string) string {
	t.Helper()
	dir, err := os.MkdirTemp(modules, "run-") //nolint:usetesting // imports are looked for in the folders above it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, copyFile(filepath.Join(openapiDir, "client.ts"), dir))
	require.NoError(t, copyFile(filepath.Join(openapiDir, "tsconfig.json"), dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600))
	out, err := npmProgram(t, modules, node, "openapi-typescript/bin/cli.js", openapiFile(t), "-o",
		filepath.Join(dir, "api.ts"))
	require.NoError(t, err, out)
	out, err = npmProgram(t, modules, node, "typescript/bin/tsc", "--project", dir)
	require.NoError(t, err, out)
	return filepath.Join(dir, "client.js")
}
