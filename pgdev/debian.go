package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// packager is Debian's package system, with the doors a test needs.
type packager struct {
	etc string // where postgresql-common keeps its settings
	run func(ctx context.Context, program string, args ...string) (string, error)
}

var debian = packager{etc: "/etc/postgresql-common", run: runQuietly}

// runQuietly runs a program without questions and in English, and puts its output into the error.
func runQuietly(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(environment(os.Environ()), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, tail(string(out)))
	}
	return string(out), nil
}

// installPackage installs the server programs and nothing that runs. Debian's server package makes a cluster and starts
// it when it is first installed; a line of settings, in place before the package and taken back after, prevents that.
func installPackage(ctx context.Context, p packager, want int, log io.Writer) error {
	fmt.Fprintln(log, "Installing PostgreSQL from Debian's packages ...")
	name, err := p.server(ctx, want)
	if err != nil {
		return err
	}
	// This package first, because it brings the settings file and owns the folder that the line goes into.
	if err := p.add(ctx, "postgresql-common"); err != nil {
		return err
	}
	restore, err := p.withoutCluster()
	if err != nil {
		return err
	}
	return errors.Join(p.add(ctx, name), restore())
}

// server is the package to install. The lists of a fresh container are empty, so they are fetched once if need be.
func (p packager) server(ctx context.Context, want int) (string, error) {
	name, err := p.candidate(ctx, want)
	if err == nil {
		return name, nil
	}
	if _, err := p.run(ctx, "apt-get", "update"); err != nil {
		return "", err
	}
	return p.candidate(ctx, want)
}

func (p packager) candidate(ctx context.Context, want int) (string, error) {
	asked := "postgresql" // the distribution's own choice of a version
	if want != 0 {
		asked = "postgresql-" + strconv.Itoa(want)
	}
	out, err := p.run(ctx, "apt-cache", "policy", asked)
	if err != nil {
		return "", err
	}
	major, ok := candidateMajor(out)
	if !ok || major < oldestMajor {
		return "", fmt.Errorf("no package of PostgreSQL %d or newer (%s)", max(oldestMajor, want), asked)
	}
	return "postgresql-" + strconv.Itoa(major), nil
}

// candidateLine is the version that apt would install: "15+248" of the package postgresql, "15.14-0+deb12u1" of
// postgresql-15.
var candidateLine = regexp.MustCompile(`(?m)^\s*Candidate: (?:\d+:)?(\d+)`)

// candidateMajor reads what `apt-cache policy` prints; false where it knows no version ("(none)") or no such package.
func candidateMajor(policy string) (int, bool) {
	m := candidateLine.FindStringSubmatch(policy)
	if m == nil {
		return 0, false
	}
	major, err := strconv.Atoi(m[1])
	return major, err == nil
}

// add waits two minutes for a package manager that runs already: on a fresh machine it is often the nightly upgrade.
func (p packager) add(ctx context.Context, name string) error {
	_, err := p.run(ctx, "apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", name)
	return err
}

// withoutCluster tells postgresql-common to make no cluster, and returns what takes the line back, so that a server
// package that the user installs later behaves as the user knows it.
func (p packager) withoutCluster() (restore func() error, err error) {
	main, err := os.ReadFile(filepath.Join(p.etc, "createcluster.conf"))
	if err != nil {
		return nil, fmt.Errorf("read Debian's cluster settings: %w", err)
	}
	if !strings.Contains(string(main), "createcluster.d") {
		return nil, errors.New("this postgresql-common reads no createcluster.d, so that its package would start a server")
	}
	path := filepath.Join(p.etc, "createcluster.d", "postrider.conf")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("keep Debian from making a cluster: %w", err)
	}
	if err := os.WriteFile(path, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return nil, fmt.Errorf("keep Debian from making a cluster: %w", err)
	}
	return func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("take back Debian's cluster setting: %w", err)
		}
		return nil
	}, nil
}
