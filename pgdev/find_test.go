package pgdev

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want version
	}{
		"Debian's build": {"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", version{15, 18}},
		"plain build":    {"postgres (PostgreSQL) 18.4\n", version{18, 4}},
		"beta":           {"postgres (PostgreSQL) 18beta1\n", version{18, 0}},
		"development":    {"postgres (PostgreSQL) 19devel\n", version{19, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseVersion(tc.text)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	_, err := parseVersion("postgres: command not found")
	require.Error(t, err)
}

func TestNewest(t *testing.T) {
	t.Parallel()
	found := []installation{{"a", version{14, 19}}, {"b", version{16, 9}}, {"c", version{16, 10}}, {"d", version{15, 14}}}
	for name, tc := range map[string]struct {
		found []installation
		want  int
		dir   string
	}{
		"newest release wins, by number and not by text": {found, 0, "c"},
		"existing data decide the major version":         {found, 15, "d"},
		"too old for postrider, even for its own data":   {found, 14, ""},
		"only too old ones":                              {found[:1], 0, ""},
		"major version of the data is absent":            {found, 17, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := newest(tc.found, tc.want)
			require.Equal(t, tc.dir, got.dir)
			require.Equal(t, tc.dir != "", ok)
		})
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	base := openDir(t)
	first, second := fakeServer(t, base, "15.1"), fakeServer(t, base, "17.2")
	older, broken := fakeServer(t, base, "13.9"), filepath.Join(base, "nothing here")
	for name, tc := range map[string]struct {
		places []place
		want   int
		dir    string
	}{
		"an earlier place wins over a newer version": {[]place{{first}, {second}}, 0, first},
		"within a place the newest version wins":     {[]place{{first, second}}, 0, second},
		"places without a usable server are passed":  {[]place{{broken}, {older}, {second}}, 0, second},
		"existing data pass the places that differ":  {[]place{{first}, {second}}, 17, second},
		"nothing anywhere":                           {[]place{{broken}, nil}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := look(t.Context(), owner, tc.places, tc.want)
			require.Equal(t, tc.dir, got.dir)
		})
	}
}

func TestInspectFollowsLinks(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	base := openDir(t)
	dir := fakeServer(t, base, "16.3")
	bin := filepath.Join(base, "usr-local-bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dir, "postgres"), filepath.Join(bin, "postgres")))
	got, ok := inspect(t.Context(), owner, bin)
	require.True(t, ok)
	require.Equal(t, installation{dir, version{16, 3}}, got)
	require.NoError(t, os.Remove(filepath.Join(dir, "initdb")))
	_, ok = inspect(t.Context(), owner, bin)
	require.False(t, ok, "a folder without initdb makes no cluster")
}

func TestInspectPassesFoldersClosedToTheServersUser(t *testing.T) {
	t.Parallel()
	owner, err := unprivileged()
	require.NoError(t, err)
	if !owner.other {
		t.Skip("only root's servers run as another user")
	}
	base := openDir(t)
	dir := fakeServer(t, base, "16.3")
	require.NoError(t, os.Chmod(base, 0o700))
	_, ok := inspect(t.Context(), owner, dir)
	require.False(t, ok)
	require.Equal(t, base, owner.closedParent(dir))
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	bin := filepath.Join(cache, "postgresql-18.4", "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(cache, ".unpack-1", "bin"), 0o755))
	got := places("/first:/second", cache)
	require.Equal(t, []place{{"/first"}, {"/second"}}, got[:2], "each entry of PATH is a place of its own, in order")
	require.Equal(t, place{bin}, got[len(got)-1], "the cache is last, and what is half unpacked is not in it")
	require.Len(t, places("", ""), len(got)-3)
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ goos, release, want string }{
		"macOS":              {"darwin", "", "brew install"},
		"Debian":             {"linux", "NAME=\"Debian\"\nID=debian\n", "apt-get"},
		"descends (Mint)":    {"linux", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt-get"},
		"quoted (Rocky)":     {"linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf"},
		"Alpine":             {"linux", "ID=alpine\n", "apk"},
		"Arch":               {"linux", "ID=arch\n", "pacman"},
		"openSUSE":           {"linux", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "zypper"},
		"unknown":            {"linux", "ID=own\n", "postgresql.org/download"},
		"no /etc/os-release": {"freebsd", "", "postgresql.org/download"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, advice(tc.goos, tc.release), tc.want)
		})
	}
	require.ErrorContains(t, noServer(nil), "found no PostgreSQL 15 or newer")
}

// openDir is a temporary folder that every user may enter; the testing package's own are closed.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// fakeServer is a folder with programs that can do no more than tell a version.
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
