package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// release is set by the linker in released builds.
var release = ""

// version is the released version, or what the build knows of its source.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				return "dev-" + setting.Value[:12]
			}
		}
	}
	return "dev"
}

type versionCmd struct{}

// Help is shown by version --help.
func (versionCmd) Help() string { return "Example:\n  postrider version" }

// Run executes version.
func (versionCmd) Run() error {
	_, err := fmt.Fprintf(os.Stdout, "postrider %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
