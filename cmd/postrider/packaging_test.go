package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The services of compose are durable, limited, and get enough time for a clean stop.
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
			Volumes     []string
			EnvFile     string `yaml:"env_file"`
			Environment map[string]string
			Image       string
			Profiles    []string
			DependsOn   map[string]struct {
				Condition string
				Required  *bool
			} `yaml:"depends_on"`
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
	const socket = "socket:/var/run/postgresql"
	require.Equal(t, []string{"data:/var/lib/postgresql", socket}, compose.Services["postgres"].Volumes)
	require.Equal(t, "/var/lib/postgresql/pgdata", compose.Services["postgres"].Environment["PGDATA"],
		"in the volume, with the images of PostgreSQL 15 to 18")
	const authority = "${DATABASE_CA_FILE:-/dev/null}:/etc/postrider/db-ca.pem:ro"
	require.Equal(t, []string{socket, authority}, compose.Services["migrate"].Volumes,
		"no node can log in as the superuser")
	require.Contains(t, fromRoot(t, ".dockerignore"), "\n.env\n", "secrets stay out of images")
	require.Contains(t, fromRoot(t, ".gitignore"), "\n/.env\n", "and out of commits")
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		require.NotContains(t, fmt.Sprint(compose.Services["postgres"].Command), setting)
	}
	example := "\n" + fromRoot(t, ".env.example")
	// With your own database PostgreSQL is not started, and nothing waits for it.
	require.Equal(t, []string{"bundled"}, compose.Services["postgres"].Profiles)
	require.Contains(t, example, "\nCOMPOSE_PROFILES=bundled\n")
	needed := compose.Services["migrate"].DependsOn["postgres"].Required
	require.True(t, needed != nil && !*needed)
	for _, name := range []string{"migrate", "postrider", "postrider-2"} {
		url := compose.Services[name].Environment["POSTRIDER_DATABASE_URL"]
		require.True(t, strings.HasPrefix(url, "${POSTRIDER_DATABASE_URL:-"), "%s: %s", name, url)
	}
	for _, name := range []string{"postrider", "postrider-2"} {
		s := compose.Services[name]
		require.Equal(t, ".env", s.EnvFile, "%s: whatever is set there reaches it", name)
		require.ElementsMatch(t,
			[]string{
				"POSTRIDER_DATABASE_URL", "POSTRIDER_LISTEN", "POSTRIDER_ENCRYPTION_KEY", "POSTRIDER_ADMIN_TOKEN",
				"POSTRIDER_ADMIN_DATABASE_URL",
			},
			slices.Collect(maps.Keys(s.Environment)), "%s: no other hides what .env says", name)
		require.Empty(t, s.Environment["POSTRIDER_ADMIN_DATABASE_URL"], "%s: only the migration has it", name)
		require.Equal(t, []string{"dead:/var/lib/postrider/dead", authority}, s.Volumes, name)
		require.Equal(t, compose.Services["migrate"].Image, s.Image, "%s: the one that is built", name)
	}
	require.Equal(t, 2, strings.Count(fromRoot(t, "Dockerfile"),
		"\nCOPY LICENSE THIRD_PARTY_NOTICES /usr/share/doc/postrider/\n"), "of both images")
	require.Subset(t, append(variables(t), ofTheImage...), variableName.FindAllString(example, -1))
	named := regexp.MustCompile(`\$\{([A-Z_]+):\?`).FindAllStringSubmatch(fromRoot(t, "compose.yaml"), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.Contains(t, example, "\n"+name[1]+"=\n")
	}
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
	require.Contains(t, unit, "\nStateDirectory=postrider/dead\n", "all else is read-only: ProtectSystem=strict")
	require.NotContains(t, unit, "RestartPreventExitStatus", "2 is what a panic ends with, as a wrong setting does")
}

// A release has the version of its name, and the linker's variable exists.
func TestReleaseIsMadeOfWhatExists(t *testing.T) {
	t.Parallel()
	var release struct {
		Version int
		Builds  []struct {
			Main, Binary string
			Env          []string
			Goos, Goarch []string
			Ldflags      []string
		}
		Archives []struct {
			Wrap bool `yaml:"wrap_in_directory"`
		}
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
	require.Contains(t, fromRoot(t, "internal/version/version.go"), "\nvar release = \"\"\n")
	require.Contains(t, b.Ldflags[0], "-X postrider/internal/version.release={{ .Version }}")
	require.Contains(t, fromRoot(t, "Dockerfile"), // the linker sets the revision: the source of an image has no history
		`-ldflags "-s -w -X ${PACKAGE}.release=${VERSION} -X ${PACKAGE}.revision=${REVISION}"`)
	require.Contains(t, fromRoot(t, "internal/version/version.go"), "\nvar revision = \"\"\n")
	require.Equal(t, []string{"CGO_ENABLED=0"}, b.Env)
	require.Equal(t, [][]string{{"linux", "darwin"}, {"amd64", "arm64"}}, [][]string{b.Goos, b.Goarch})
	require.Equal(t, "bin/postrider", b.Binary, "as docs/operate/install.md has it")
	require.True(t, release.Archives[0].Wrap, "it has a README.md, as the folder that it is unpacked in may have")
	require.Equal(t, "sha256", release.Checksum.Algorithm)
	require.Len(t, release.Sboms, 1)
	require.Len(t, release.Signs, 1)
	signs := release.Signs[0]
	require.Equal(t, []string{"cosign", "checksum"}, []string{signs.Cmd, signs.Artifacts},
		"the checksums are of all that is released")
	require.Equal(t, []string{"sign-blob", "--bundle=${signature}", "--yes", "${artifact}"}, signs.Args,
		"with no key that could be lost")
	require.Contains(t, fromRoot(t, "docs/operate/install.md"),
		"--bundle "+strings.ReplaceAll(signs.Signature, "${artifact}", release.Checksum.Name))
}
