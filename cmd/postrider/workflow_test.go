package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var pinnedAction = regexp.MustCompile(`^\s*-? ?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestWorkflowRunsWhatExists: the workflow runs the checks, and no action in it can change without a commit.
func TestWorkflowRunsWhatExists(t *testing.T) {
	t.Parallel()
	text := fromRoot(t, ".github/workflows/ci.yaml")
	var workflow struct {
		On          map[string]any
		Permissions map[string]string
		Jobs        map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &workflow))
	require.Contains(t, workflow.On, "pull_request")
	require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "uses:") {
			require.Regexp(t, pinnedAction, strings.TrimRight(line, "\n"))
		}
	}
	var runs []string
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			runs = append(runs, step.Run)
			if command, makes := strings.CutPrefix(step.Run, "make "); makes {
				target, _, _ := strings.Cut(command, " ")
				require.Contains(t, fromRoot(t, "Makefile"), "\n"+target+": ", "of `%s`", step.Run)
			}
		}
	}
	require.Subset(t, runs, []string{
		`sudo env "PATH=$PATH" .ci/run`, "make test-postgres VERSION=${{ matrix.version }}", "make lint-openapi",
		"make vulncheck",
	})
}

// TestRenovateCoversWhatIsPinned: renovate.json is JSON, and its own patterns find each version that no manager of
// Renovate finds.
func TestRenovateCoversWhatIsPinned(t *testing.T) {
	t.Parallel()
	var renovate struct {
		Extends         []string
		EnabledManagers []string
		CustomManagers  []struct {
			ManagerFilePatterns, MatchStrings []string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(fromRoot(t, "renovate.json")), &renovate))
	require.Contains(t, renovate.Extends, "docker:pinDigests")
	require.ElementsMatch(t, renovate.EnabledManagers,
		[]string{"gomod", "dockerfile", "docker-compose", "github-actions", "npm", "custom.regex"})
	require.Len(t, renovate.CustomManagers, 2)
	for file, pinned := range map[string]string{
		"Makefile":                    `\.(com|org)/\S+@v\d`,
		"e2e/openapi_test.go":         `\.(com|org)/\S+@v\d`,
		"internal/testdb/programs.sh": `release=\d`,
	} {
		want := len(regexp.MustCompile(pinned).FindAllString(fromRoot(t, file), -1))
		require.NotZero(t, want, file)
		found := 0
		for _, manager := range renovate.CustomManagers {
			for _, of := range manager.ManagerFilePatterns {
				if regexp.MustCompile(strings.Trim(of, "/")).MatchString(file) {
					found += len(regexp.MustCompile(manager.MatchStrings[0]).FindAllString(fromRoot(t, file), -1))
				}
			}
		}
		require.Equal(t, want, found, file)
	}
}
