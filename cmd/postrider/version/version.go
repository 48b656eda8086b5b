// Package version is what the program knows of its own build: the released version, or the revision of its source.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker in released builds and in images.
var release = ""

// revision is set by the linker where the source comes without its history, as into an image.
var revision = ""

// Number is the released version, or what the build knows of its source.
func Number() string { return numberOf(release, Revision()) }

func numberOf(release, revision string) string {
	switch {
	case release != "":
		return release
	case len(revision) >= 12:
		return "dev-" + revision[:12]
	}
	return "dev"
}

// Revision is the commit that was built; "" where nobody said.
func Revision() string { return cmp.Or(built("vcs.revision"), revision) }

// built says what the build knows of its source: setting vcs.revision, vcs.time or vcs.modified; "" for nothing.
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

// Build is what the program knows of how it was made.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Time is the revision's, not the build's: the same source makes the same program.
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // there were changes beside the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read returns what is known of this build.
func Read() Build {
	return Build{
		Version: Number(), Revision: Revision(), Time: built("vcs.time"), Modified: built("vcs.modified") == "true",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String is one line: "postrider 1.0.0 go1.26.1 linux/amd64, revision 0123456789abcdef of 2026-11-22T09:00:00Z".
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
