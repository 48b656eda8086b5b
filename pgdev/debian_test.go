package pgdev

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCandidateMajor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy string
		want   int
	}{
		"Debian 12":               {"postgresql:\n  Installed: (none)\n  Candidate: 15+248+deb12u1\n  Version table:\n", 15},
		"a server package":        {"postgresql-16:\n  Installed: (none)\n  Candidate: 16.10-0ubuntu0.24.04.1\n", 16},
		"with an epoch":           {"postgresql:\n  Candidate: 1:17+270\n", 17},
		"lists are empty":         {"postgresql:\n  Installed: (none)\n  Candidate: (none)\n", 0},
		"no package of that name": {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := candidateMajor(tc.policy)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.want != 0, ok)
		})
	}
}

// aptScript plays a package system that installs a file of settings as postgresql-common does, and notes what it was
// asked.
type aptScript struct {
	etc      string
	fresh    bool // knows no packages before an update
	policy   string
	includes string
	fails    string // the package whose install fails
	asked    []string
	guarded  bool // the line against a cluster was in place when the server package arrived
}

func (a *aptScript) run(_ context.Context, program string, args ...string) (string, error) {
	line := program + " " + strings.Join(args, " ")
	a.asked = append(a.asked, line)
	name := args[len(args)-1]
	switch {
	case program == "apt-cache" && !a.fresh:
		return a.policy, nil
	case name == "update":
		a.fresh = false
	case name == "postgresql-common":
		return "", os.WriteFile(filepath.Join(a.etc, "createcluster.conf"), []byte(a.includes), 0o644)
	case program == "apt-get":
		text, err := os.ReadFile(filepath.Join(a.etc, "createcluster.d", "postrider.conf"))
		a.guarded = err == nil && strings.Contains(string(text), "create_main_cluster = false")
		if name == a.fails {
			return "", errors.New("no space left")
		}
	}
	return "", nil
}

func TestInstallPackage(t *testing.T) {
	t.Parallel()
	const policy, include = "postgresql:\n  Candidate: 15+248\n", "include_dir '/etc/postgresql-common/createcluster.d'\n"
	for name, tc := range map[string]struct {
		apt    aptScript
		want   int
		server string // the package installed; "" = none
		fails  string
	}{
		"the distribution's version": {
			apt: aptScript{policy: policy, includes: include}, server: "postgresql-15",
		},
		"a fresh container fetches its lists": {
			apt: aptScript{policy: policy, includes: include, fresh: true}, server: "postgresql-15",
		},
		"too old a distribution": {
			apt: aptScript{policy: "postgresql:\n  Candidate: 13+225\n"}, fails: "no package of PostgreSQL 15",
		},
		"no cluster can be prevented": {
			apt: aptScript{policy: policy, includes: "# nothing\n"}, fails: "would start a server",
		},
		"a failed install takes its setting back": {
			apt: aptScript{policy: policy, includes: include, fails: "postgresql-15"}, server: "postgresql-15",
			fails: "no space left",
		},
		"existing data decide the major version": {
			apt: aptScript{policy: "postgresql-17:\n  Candidate: 17.2-1\n", includes: include}, want: 17,
			server: "postgresql-17",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apt := tc.apt
			apt.etc = t.TempDir()
			err := installPackage(t.Context(), packager{apt.etc, apt.run}, tc.want, io.Discard)
			if tc.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.fails)
			}
			require.Equal(t, tc.server != "", apt.guarded, "no cluster may be made: %q", apt.asked)
			require.Equal(t, tc.server != "", strings.HasSuffix(apt.asked[len(apt.asked)-1], " "+tc.server) && tc.server != "")
			require.True(t, missing(filepath.Join(apt.etc, "createcluster.d", "postrider.conf")))
		})
	}
}
