package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// openapiDir has the npm packages that lint server/openapi.yaml and generate clients from it, and a program for each client.
	openapiDir  = "testdata/openapi"
	openapiFile = "../../server/openapi.yaml"
)

// npmProgram runs a program of an npm package in dir, without a request to its maker, and returns what it printed.
func npmProgram(t *testing.T, dir, node, script string, args ...string) (out string, err error) {
	t.Helper()
	run := exec.Command(node, append([]string{filepath.Join(dir, "node_modules", script)}, args...)...)
	run.Env = append(ownEnvironment(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_UPDATE_NOTIFIER=1")
	text, err := run.CombinedOutput()
	return string(text), err
}

// TestOpenAPIFilePassesLinters holds server/openapi.yaml to the recommended rules of Redocly and Spectral: no errors.
func TestOpenAPIFilePassesLinters(t *testing.T) {
	t.Parallel()
	node, dir := nodePackages(t, openapiDir)
	linters := map[string][]string{
		"@redocly/cli/bin/cli.js": {"lint", "--extends=recommended", openapiFile},
		"@stoplight/spectral-cli/dist/index.js": {
			"lint", "--ruleset=" + filepath.Join(openapiDir, "spectral.yaml"), "--fail-severity=error", openapiFile,
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
