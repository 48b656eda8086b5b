// Package version describes the build of the program: the released version, or the revision of its source.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker in released builds and in images.
var release = ""

// revision is set by the linker if the source has no history, as in the build of an image.
var revision = ""

// Number returns the released version, or one from the revision.
func Number() string { return numberOf(release, Revision()) }

func numberOf(release, revision string) string {
	if release != "" {
		return release
	}
	if len(revision) >= 12 {
		return "dev-" + revision[:12]
	}
	return "dev"
}

// Revision returns the commit that was built; "" if unknown.
func Revision() string { return cmp.Or(built("vcs.revision"), revision) }

// built returns a setting of the build: vcs.revision, vcs.time or vcs.modified; "" if unknown.
func built(setting string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == setting {
			return s.Value
		}
	}
	return ""
}

// Build describes a build.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`     // of the revision: builds are reproducible
	Modified bool   `json:"modified,omitempty"` // the source had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read describes this build.
func Read() Build {
	return Build{
		Version: Number(), Revision: Revision(), Time: built("vcs.time"), Modified: built("vcs.modified") == "true",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String describes the build in one line: "postrider 1.0.0 go1.26.1 linux/amd64, revision 0123456789abcdef of
// 2026-11-22T09:00:00Z".
func (b Build) String() string {
	line := fmt.Sprintf("postrider %s %s %s", b.Version, b.Go, b.Platform)
	if b.Revision != "" {
		line += ", revision " + b.Revision
	}
	if b.Time != "" {
		line += " of " + b.Time
	}
	if b.Modified {
		line += ", with changes"
	}
	return line
}
