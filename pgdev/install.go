package pgdev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// install gets the server programs by the first way that works here: the distribution's packages where we may install
// them (root on Debian or Ubuntu), else the pinned archive. One install runs at a time per cache: `go test ./...`
// starts a process per package, and on a fresh machine all of them arrive here together.
func install(ctx context.Context, owner identity, want int, log io.Writer) (installation, error) {
	cache := owner.cacheDir()
	if cache == "" {
		return installation{}, noServer(nil)
	}
	if err := errors.Join(os.MkdirAll(cache, 0o755), owner.letThrough(cache)); err != nil {
		return installation{}, noServer(fmt.Errorf("make cache folder: %w", err))
	}
	lock, err := acquire(ctx, cache, installDeadline)
	if err != nil {
		return installation{}, fmt.Errorf("pgdev: wait for another install of PostgreSQL: %w", err)
	}
	defer lock.Close()
	var tried []error
	for _, way := range ways(owner, want, cache, log) {
		if i, ok := look(ctx, owner, everywhere(owner), want); ok {
			return i, nil // another process, or the way before, has installed it
		}
		tried = append(tried, way(ctx))
	}
	if i, ok := look(ctx, owner, everywhere(owner), want); ok {
		return i, nil
	}
	return installation{}, noServer(errors.Join(tried...))
}

// ways are the installs possible on this system, best first.
func ways(owner identity, want int, cache string, log io.Writer) []func(context.Context) error {
	var ways []func(context.Context) error
	if _, err := exec.LookPath("apt-get"); err == nil && owner.other {
		ways = append(ways, func(ctx context.Context) error { return installPackage(ctx, debian, want, log) })
	}
	if pinned.serves(platform(), want) && !musl() {
		ways = append(ways, func(ctx context.Context) error { return pinned.install(ctx, platform(), cache, log) })
	}
	return ways
}

// noServer says what to do on this system, then what was tried.
func noServer(tried error) error {
	release, _ := os.ReadFile("/etc/os-release")
	err := fmt.Errorf("pgdev: found no PostgreSQL %d or newer: %s, or give postrider the URL of a database of yours",
		oldestMajor, advice(runtime.GOOS, string(release)))
	if tried != nil {
		return fmt.Errorf("%w\n%w", err, tried)
	}
	return err
}

// advice is the command that installs a server, by operating system and the text of /etc/os-release.
func advice(goos, release string) string {
	if goos == "darwin" {
		return "run `brew install postgresql@18`"
	}
	for _, family := range families(release) {
		switch family {
		case "debian", "ubuntu":
			return "run `sudo apt-get install postgresql`"
		case "alpine":
			return "run `apk add postgresql`"
		case "fedora", "rhel", "centos":
			return "run `sudo dnf install postgresql-server`"
		case "arch":
			return "run `sudo pacman -S postgresql`"
		case "suse", "opensuse":
			return "run `sudo zypper install postgresql-server`"
		}
	}
	return "install it from https://www.postgresql.org/download/ and put its programs on the PATH"
}

// families are the values of ID and ID_LIKE in /etc/os-release: the distribution, then those it descends from.
func families(release string) []string {
	var id, like []string
	lines := bufio.NewScanner(strings.NewReader(release))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch value = strings.Trim(value, `"'`); name {
		case "ID":
			id = strings.Fields(value)
		case "ID_LIKE":
			like = strings.Fields(value)
		}
	}
	return append(id, like...)
}
