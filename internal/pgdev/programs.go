package pgdev

import (
	"cmp"
	"context"
	_ "embed" // of fetch.sh
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

const oldestMajor = 15 // the oldest PostgreSQL that postrider supports

// installation is a directory with the server's programs.
type installation struct {
	dir, version string
	major        int
}

// versionText matches `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `... 18beta1` and `... 19devel`.
var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// places returns patterns of the directories of server programs, in order of preference.
func places(path, cache string) []string {
	return append(filepath.SplitList(path), // the user's choice
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // Red Hat and Fedora, from PostgreSQL's repository
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		filepath.Join(cache, "postgresql", "bin")) // from fetch
}

// find returns the newest installation of the first place that has one; its major version is 0 if none has. major 0
// accepts every supported version.
func find(ctx context.Context, owner owner, places []string, major int) (best installation) {
	for _, place := range places {
		dirs, _ := filepath.Glob(place)
		for _, dir := range dirs {
			i := inspect(ctx, owner, dir)
			if i.major >= max(oldestMajor, best.major+1) && (major == 0 || major == i.major) {
				best = i
			}
		}
		if best.major > 0 {
			break
		}
	}
	return best
}

// inspect returns the version of the programs in a directory, 0 if there are none that the owner can run. It resolves
// links: the programs find their libraries and files beside the real path.
func inspect(ctx context.Context, owner owner, dir string) installation {
	server, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return installation{}
	}
	dir = filepath.Dir(server)
	out, _ := owner.command(ctx, server, "--version").Output()
	text := versionText.FindStringSubmatch(string(out))
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil || text == nil {
		return installation{}
	}
	major, _ := strconv.Atoi(text[2])
	return installation{dir, text[1], major}
}

// programs finds or fetches the server programs. major is the version of existing data, 0 if there are none.
func programs(ctx context.Context, owner owner, opts Options, major int) (installation, error) {
	for {
		all := places(os.Getenv("PATH"), opts.cache)
		if i := find(ctx, owner, all, major); i.major > 0 {
			return i, nil
		}
		if find(ctx, owner, all, 0).major > 0 {
			return installation{}, fmt.Errorf("the data were created by PostgreSQL %d, which is not installed: install it or "+
				"choose another directory", major)
		}
		if err := fetch(ctx, owner, opts); err != nil {
			return installation{}, fmt.Errorf("found no PostgreSQL %d or newer: install it, on Debian and Ubuntu by "+
				"`sudo apt-get install postgresql`, on macOS by `brew install postgresql@18`, or from "+
				"https://www.postgresql.org/download/ with its programs in the PATH\n%w", oldestMajor, err)
		}
	}
}

// fetchScript gets PostgreSQL from the packages of Debian or Ubuntu, as any user, and installs nothing in the system.
//
//go:embed fetch.sh
var fetchScript string

// fetch runs the script. Processes of `go test ./...` call it concurrently; the script lets one of them fetch.
func fetch(ctx context.Context, owner owner, opts Options) error {
	dir := filepath.Join(opts.cache, "postgresql")
	fmt.Fprintf(opts.Log, "Fetching PostgreSQL from the packages of this system into %s ...\n", dir)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", fetchScript, "sh", dir)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || inspect(ctx, owner, dir+"/bin").major < oldestMajor {
		err = cmp.Or(err, errors.New("it does not run, or is too old"))
		return fmt.Errorf("fetch PostgreSQL: %w\n%s", err, tail(string(out)))
	}
	return nil
}

// owner is the user that runs the server. PostgreSQL does not run as root: for root it is another user.
type owner struct {
	name     string // empty: the user of this process
	uid, gid int
}

// unprivileged returns the current user, or for root another user without rights.
func unprivileged() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{"", -1, -1}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.Atoi(u.Uid)
			gid, gidErr := strconv.Atoi(u.Gid)
			return owner{name, uid, gid}, cmp.Or(uidErr, gidErr)
		}
	}
	return owner{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody: " +
		"start postrider as another user")
}

// command runs a program as the owner, with English messages and in its own process group: Ctrl-C in a terminal reaches
// postrider only, which then stops the server.
func (o owner) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // the owner may have no access to the current directory
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = ownGroup()
	if o.name != "" {
		setUser(cmd.SysProcAttr, o.uid, o.gid)
	}
	return cmd
}

// own makes the owner the owner of a file.
func (o owner) own(path string) error { return os.Lchown(path, o.uid, o.gid) }

// canEnter tests the access to a directory as the owner, because groups and access control lists matter.
func (o owner) canEnter(dir string) bool {
	return o.name == "" || o.command(context.Background(), "/bin/sh", "-c", `test -x "$0"`, dir).Run() == nil
}

// cacheDir is for the fetched programs and the prepared cluster. The owner cannot enter root's home.
func (o owner) cacheDir() (string, error) {
	if o.name != "" {
		return "/var/cache/postrider", nil
	}
	cache, err := os.UserCacheDir()
	return cache + "/postrider", err
}
