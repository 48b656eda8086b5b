package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var pinnedAction = regexp.MustCompile(`^\s*-? ?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// The workflow runs the checks, and no action in it can change without a commit.
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
