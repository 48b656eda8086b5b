package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What compose is asked to run is durable, bounded, and gets the time that a clean stop takes.
func TestComposeIsFitForUse(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command         any
			StopGracePeriod string `yaml:"stop_grace_period"`
			Restart         string
			Logging         struct{ Driver string }
			Deploy          struct {
				Resources struct{ Limits struct{ Memory string } }
			}
			Volumes []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "compose.yaml")), &compose))
	for _, name := range []string{"postgres", "postrider", "postrider-2"} {
		s := compose.Services[name]
		require.NotEmpty(t, s.Deploy.Resources.Limits.Memory, name)
		require.NotEmpty(t, s.StopGracePeriod, name)
		require.Equal(t, "unless-stopped", s.Restart, name)
		require.Equal(t, "local", s.Logging.Driver, "%s: the logs have an end", name)
	}
	require.Equal(t, []string{"data:/var/lib/postgresql/data"}, compose.Services["postgres"].Volumes)
	require.Contains(t, fromRoot(t, ".dockerignore"), "\n.env\n", "secrets stay out of images")
	require.Contains(t, fromRoot(t, ".gitignore"), "\n/.env\n", "and out of commits")
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		require.NotContains(t, fmt.Sprint(compose.Services["postgres"].Command), setting)
	}
	named := regexp.MustCompile(`\$\{([A-Z_]+):\?`).FindAllStringSubmatch(fromRoot(t, "compose.yaml"), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.Contains(t, "\n"+fromRoot(t, ".env.example"), "\n"+name[1]+"=\n")
	}
}

// An empty variable, as compose passes it on, is none.
func TestEmptyVariablesAreNone(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNodeWith(t, append(serveEnv(db), "POSTRIDER_ALLOW_CIDR=", "POSTRIDER_PUBLIC_URL=", "POSTRIDER_TRUSTED_PROXIES="))
	r := postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Zero(t, r.code, r.stderr)
	n.stop()
	r = postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "not ready")
	require.Equal(t, 2, postrider(t, nil, "ready", "--listen", "nowhere").code)
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postrider 1.2.3 go1.26.1 linux/amd64, revision 0123 of 2026-11-22T09:00:00Z, with changes",
		build{Version: "1.2.3", Go: "go1.26.1", Platform: "linux/amd64", Revision: "0123", Time: "2026-11-22T09:00:00Z", Modified: true}.String())
	flag, verb := postrider(t, nil, "--version"), postrider(t, nil, "version")
	require.Zero(t, flag.code, flag.stderr)
	require.Equal(t, verb.stdout, flag.stdout)
	require.Contains(t, postrider(t, nil, "version", "-o", "json").stdout, `"platform":"`)
}

var execLine = regexp.MustCompile(`(?m)^Exec(?:Start|StartPre)=/usr/local/bin/postrider (.*)$`)

func TestSystemdUnitRunsWhatExists(t *testing.T) {
	t.Parallel()
	unit := fromRoot(t, "deploy/systemd/postrider.service")
	lines := execLine.FindAllStringSubmatch(unit, -1)
	require.Len(t, lines, 2)
	for _, line := range lines {
		_, err := newParser(t).Parse(strings.Fields(line[1]))
		require.NoError(t, err, line[0])
	}
	require.Subset(t, variables(t), variableName.FindAllString(unit, -1))
	require.Contains(t, unit, "\nRestart=always\n")
	require.NotContains(t, unit, "RestartPreventExitStatus", "2 is what a panic ends with, as a wrong setting does")
	analyze := tool(t, "systemd-analyze", "systemd")
	file := filepath.Join(t.TempDir(), "postrider.service")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/postrider", program)), 0o600))
	out, err := exec.Command(analyze, "verify", "--recursive-errors=no", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "postrider.service", "nothing in it is unknown")
}

// A release has what it says, and the linker's variable exists.
func TestReleaseIsMadeOfWhatExists(t *testing.T) {
	t.Parallel()
	var release struct {
		Version int
		Builds  []struct {
			Main         string
			Env          []string
			Goos, Goarch []string
			Ldflags      []string
		}
		Archives []struct{ Files []string }
		Checksum struct {
			Algorithm string
			Name      string `yaml:"name_template"`
		}
		Sboms []any
		Signs []struct {
			Cmd, Artifacts, Signature string
			Args                      []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, ".goreleaser.yaml")), &release))
	require.Equal(t, 2, release.Version)
	require.Len(t, release.Builds, 1)
	b := release.Builds[0]
	require.Contains(t, fromRoot(t, b.Main+"/version.go"), "\nvar release = \"\"\n")
	require.Contains(t, b.Ldflags[0], "-X main.release={{ .Version }}")
	require.Contains(t, fromRoot(t, "Dockerfile"), "-X main.release=${VERSION}")
	require.Equal(t, []string{"CGO_ENABLED=0"}, b.Env)
	require.Equal(t, [][]string{{"linux", "darwin"}, {"amd64", "arm64"}}, [][]string{b.Goos, b.Goarch})
	for _, pattern := range release.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join("..", "..", strings.ReplaceAll(pattern, "**/*", "*")))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
	}
	require.Equal(t, "sha256", release.Checksum.Algorithm)
	require.Len(t, release.Sboms, 1)
	require.Len(t, release.Signs, 1)
	signs := release.Signs[0]
	require.Equal(t, []string{"cosign", "checksum"}, []string{signs.Cmd, signs.Artifacts}, "the checksums are of all that is released")
	require.Equal(t, []string{"sign-blob", "--bundle=${signature}", "--yes", "${artifact}"}, signs.Args, "with no key that could be lost")
	require.Contains(t, fromRoot(t, "docs/installing.md"), "--bundle "+strings.ReplaceAll(signs.Signature, "${artifact}", release.Checksum.Name))
}
