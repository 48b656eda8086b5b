package pgdev

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// oldestMajor is the oldest PostgreSQL that postrider runs on.
const oldestMajor = 15

// version is a release number; minor is 0 for a beta or development build.
type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor))
}

// versionText matches `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `... 18beta1` and `... 19devel`.
var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`)

// parseVersion reads what `postgres --version` prints.
func parseVersion(text string) (version, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return version{}, fmt.Errorf("pgdev: %q names no PostgreSQL version", text)
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return version{}, fmt.Errorf("pgdev: version %q: %w", text, err)
	}
	minor, _ := strconv.Atoi(m[2]) // absent in a beta
	return version{major, minor}, nil
}

// installation is a folder with the server's programs.
type installation struct {
	dir     string
	version version
}

// place is a set of folders of equal standing: the newest version in it wins, and an earlier place wins over a later
// one.
type place []string

// places lists where server programs may be, in the order in which they are taken. Every entry of PATH is a place of
// its own, because its order is the user's choice.
func places(path, cache string) []place {
	var all []place
	for _, dir := range filepath.SplitList(path) {
		all = append(all, place{dir})
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu: not in PATH
		"/usr/pgsql-*/bin",          // Red Hat and kin, from PostgreSQL's own repository: not in PATH
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		dirs, _ := filepath.Glob(pattern)
		all = append(all, dirs)
	}
	if cache != "" {
		dirs, _ := filepath.Glob(filepath.Join(cache, "postgresql-*", "bin"))
		all = append(all, dirs)
	}
	return all
}

// everywhere are the places of this system.
func everywhere(owner identity) []place { return places(os.Getenv("PATH"), owner.cacheDir()) }

// newest is the newest fitting installation of one place. want 0 fits every version from oldestMajor on.
func newest(found []installation, want int) (installation, bool) {
	fitting := slices.DeleteFunc(slices.Clone(found), func(i installation) bool {
		return i.version.major < oldestMajor || want != 0 && i.version.major != want
	})
	if len(fitting) == 0 {
		return installation{}, false
	}
	return slices.MaxFunc(fitting, func(a, b installation) int { return a.version.compare(b.version) }), true
}

// look asks each folder's own programs for their version, place by place, and stops at the first place that serves.
func look(ctx context.Context, owner identity, places []place, want int) (installation, bool) {
	for _, p := range places {
		var found []installation
		for _, dir := range p {
			if i, ok := inspect(ctx, owner, dir); ok {
				found = append(found, i)
			}
		}
		if best, ok := newest(found, want); ok {
			return best, true
		}
	}
	return installation{}, false
}

// inspect reports whether a folder holds both server programs and the owner can run them. Links are followed first:
// the programs find their libraries and files beside where they really are.
func inspect(ctx context.Context, owner identity, dir string) (installation, bool) {
	resolved, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return installation{}, false
	}
	dir = filepath.Dir(resolved)
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return installation{}, false
	}
	if owner.closedParent(dir) != "" {
		return installation{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := owner.command(ctx, resolved, "--version").Output()
	if err != nil {
		return installation{}, false
	}
	v, err := parseVersion(string(out))
	return installation{dir, v}, err == nil
}

// programs finds the server programs, or installs them. want is the major version of existing data, 0 where there are
// none.
func programs(ctx context.Context, owner identity, want int, log io.Writer) (installation, error) {
	if i, ok := look(ctx, owner, everywhere(owner), want); ok {
		return i, nil
	}
	if i, ok := look(ctx, owner, everywhere(owner), 0); ok && !pinned.serves(platform(), want) {
		return installation{}, fmt.Errorf("pgdev: the data were made by PostgreSQL %d, but here is only %s in %s: "+
			"install PostgreSQL %d or choose another folder", want, i.version, i.dir, want)
	}
	return install(ctx, owner, want, log)
}
