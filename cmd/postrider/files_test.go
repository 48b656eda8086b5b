package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	commandLine  = regexp.MustCompile(`(?m)^\s*(?:command:|CMD) (\[.*\])$`)
	variableName = regexp.MustCompile(`POSTRIDER_[A-Z_]+`)
	fence        = regexp.MustCompile("(?ms)^```[a-z ]*\n(.*?)^```")
	makeCommand  = regexp.MustCompile(`(?m)^\s*(?:\$ )?make ([a-z0-9-]+)`)
)

// fromRoot reads a file of the repository.
func fromRoot(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(raw)
}

// The files that start the program are checked without Docker: a verb or flag that was renamed is found here.
func TestContainerFilesNameWhatExists(t *testing.T) {
	t.Parallel()
	require.Contains(t, fromRoot(t, "Dockerfile"), "\nUSER nonroot:nonroot\n")
	for file, want := range map[string][]string{
		"compose.yaml": {"migrate up", "serve", "sink --listen 0.0.0.0:7481"},
		"Dockerfile": {
			"dev --listen 0.0.0.0:7480 --sink-listen 0.0.0.0:7481 --keep /var/lib/postrider/data", "serve",
		},
	} {
		text := fromRoot(t, file)
		var commands []string
		for _, match := range commandLine.FindAllStringSubmatch(text, -1) {
			var args []string
			require.NoError(t, json.Unmarshal([]byte(match[1]), &args))
			_, err := newParser(t).Parse(args)
			require.NoError(t, err, match[1])
			commands = append(commands, strings.Join(args, " "))
		}
		require.Equal(t, want, commands)
		require.Subset(t, append(variables(t), ofTheImage...), variableName.FindAllString(text, -1))
	}
}

// ofTheImage are the variables that compose builds it by; no flag reads them.
var ofTheImage = []string{"POSTRIDER_VERSION", "POSTRIDER_REVISION"}

// docs/operate/install.md promises it.
func TestEachFlagOfServeHasAVariable(t *testing.T) {
	t.Parallel()
	context, err := newParser(t).Parse([]string{"serve"})
	require.NoError(t, err)
	for _, flag := range context.Selected().Flags {
		require.NotEmpty(t, flag.Envs, "--%s", flag.Name)
	}
}

// variables are the environment variables that some flag reads.
func variables(t *testing.T) (names []string) {
	t.Helper()
	for _, leaf := range newParser(t).Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			names = append(names, flag.Envs...)
		}
	}
	require.Contains(t, names, "POSTRIDER_DATABASE_URL")
	return names
}

func TestReadmeNamesTargetsThatExist(t *testing.T) {
	t.Parallel()
	makefile := fromRoot(t, "Makefile")
	named := map[string]bool{}
	for _, block := range fence.FindAllStringSubmatch(fromRoot(t, "README.md"), -1) {
		for _, match := range makeCommand.FindAllStringSubmatch(block[1], -1) {
			named[match[1]] = true
			require.Regexp(t, `(?m)^`+match[1]+`:`, makefile, "make %s", match[1])
		}
	}
	require.True(t, named["dev"], "the README says how to try it")
	require.True(t, named["test"], "the README says how to test it")
}
