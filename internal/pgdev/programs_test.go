package pgdev

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionText(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, version, major string }{
		"Debian's build": {"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", "15.18", "15"},
		"plain build":    {"postgres (PostgreSQL) 18.4\n", "18.4", "18"},
		"beta":           {"postgres (PostgreSQL) 18beta1\n", "18beta1", "18"},
		"development":    {"postgres (PostgreSQL) 19devel\n", "19devel", "19"},
	} {
		require.Equal(t, []string{tc.version, tc.major}, versionText.FindStringSubmatch(tc.text)[1:], name)
	}
	require.Nil(t, versionText.FindStringSubmatch("postgres: command not found"))
}

func TestFind(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	base := openDir(t)
	first, second := fakeServer(t, base, "15.1"), fakeServer(t, base, "17.2")
	older, broken := fakeServer(t, base, "13.9"), filepath.Join(base, "nothing here")
	both, numbers := filepath.Join(base, "*", "bin"), openDir(t)
	fakeServer(t, numbers, "99.9")
	newest := fakeServer(t, numbers, "100.1")
	for name, tc := range map[string]struct {
		places []string
		want   int
		dir    string
	}{
		"an earlier place wins over a newer version":     {[]string{first, second}, 0, first},
		"within a place the newest version wins":         {[]string{both}, 0, second},
		"the newest by number and not by text":           {[]string{filepath.Join(numbers, "*", "bin")}, 0, newest},
		"places without a usable server are passed":      {[]string{broken, older, second}, 0, second},
		"too old for postrider, even for its own data":   {[]string{older}, 13, ""},
		"existing data pass the places that differ":      {[]string{first, second}, 17, second},
		"existing data decide the major version":         {[]string{both}, 15, first},
		"major version of the data is absent everywhere": {[]string{first, second}, 16, ""},
		"nothing anywhere":                               {[]string{broken}, 0, ""},
	} {
		got := find(t.Context(), owner, tc.places, tc.want)
		require.Equal(t, tc.dir, got.dir, name)
		require.Equal(t, tc.dir != "", got.major > 0, name)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	base := openDir(t)
	dir := fakeServer(t, base, "16.3")
	bin := filepath.Join(base, "usr-local-bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dir, "postgres"), filepath.Join(bin, "postgres")))
	require.Equal(t, installation{dir, "16.3", 16}, inspect(t.Context(), owner, bin))
	require.NoError(t, os.Remove(filepath.Join(dir, "initdb")))
	require.Zero(t, inspect(t.Context(), owner, bin).major, "a folder without initdb makes no cluster")
	if owner.name == "" {
		return // only root's servers run as another user
	}
	dir = fakeServer(t, base, "16.4")
	require.NoError(t, os.Chmod(base, 0o700))
	require.Zero(t, inspect(t.Context(), owner, dir).major, "a folder closed to the server's user")
	require.False(t, owner.canEnter(dir))
}

func TestProgramDirectories(t *testing.T) {
	t.Parallel()
	got := places("/first:/second", "/cache")
	require.Equal(t, []string{"/first", "/second"}, got[:2], "each entry of PATH is a place of its own, in order")
	require.Equal(t, "/cache/postgresql/bin", got[len(got)-1], "the cache is last")
	require.Len(t, places("", "/cache"), len(got)-2)
}

// aptGet and dpkg stand for Debian's programs: apt-get downloads a package, and dpkg unpacks programs that print
// a version and the path of their libraries.
const (
	aptGet = `#!/bin/sh
for argument; do case $argument in
  Dir::Cache=*) cache=${argument#*=} ;;
  update) echo "E: a source failed"; exit 100 ;;
  install)
    [ "$APT_FAILS" = "" ] || { echo "E: Unable to locate package postgresql"; exit 100; }
    : >"$cache/archives/x.deb" ;;
esac; done
`
	dpkg = `#!/bin/sh
bin=$3/usr/lib/postgresql/17/bin
mkdir -p "$bin" "$3/usr/lib/x86_64-linux-gnu" "$3/lib/x86_64-linux-gnu"
for program in postgres initdb; do
  printf '#!/bin/sh\necho "postgres (PostgreSQL) $VERSION $LD_LIBRARY_PATH $*"\n' >"$bin/$program"
  chmod 755 "$bin/$program"
done
`
)

func TestFetch(t *testing.T) {
	owner, err := unprivileged()
	require.NoError(t, err)
	programs := openDir(t)
	for name, script := range map[string]string{"apt-get": aptGet, "dpkg": dpkg} {
		require.NoError(t, os.WriteFile(filepath.Join(programs, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	for name, tc := range map[string]struct{ version, apt, fails string }{
		"programs that run":        {"17.4", "", ""},
		"programs too old":         {"13.9", "", "too old"},
		"programs that fail":       {"", "", "does not run"},
		"a package that is absent": {"17.4", "fails", "Unable to locate package"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("VERSION", tc.version)
			t.Setenv("APT_FAILS", tc.apt)
			cache := filepath.Join(openDir(t), "a cache")
			require.NoError(t, openToAll(cache))
			var log bytes.Buffer
			err := fetch(t.Context(), owner, Options{cache: cache, Log: &log})
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Contains(t, log.String(), "Fetching PostgreSQL")
			got := find(t.Context(), owner, places("", cache)[5:], 0)
			require.Equal(t, installation{filepath.Join(cache, "postgresql", "bin"), "17.4", 17}, got)
			out, err := owner.command(t.Context(), filepath.Join(got.dir, "postgres"), "-D", "x y").Output()
			require.NoError(t, err)
			root := filepath.Join(cache, "postgresql", "root")
			require.Equal(t, "postgres (PostgreSQL) 17.4 "+root+"/usr/lib/x86_64-linux-gnu:"+root+
				"/lib/x86_64-linux-gnu -D x y\n", string(out))
			t.Setenv("APT_FAILS", "now")
			require.NoError(t, fetch(t.Context(), owner, Options{cache: cache, Log: &log}), "once per machine")
		})
	}
}

// openDir is a temporary folder that every user may enter; the testing package's own are closed.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// fakeServer is a folder with programs that only print a version.
func fakeServer(t *testing.T, base, version string) string {
	t.Helper()
	dir := filepath.Join(base, version, "bin")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, program := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	}
	return dir
}
