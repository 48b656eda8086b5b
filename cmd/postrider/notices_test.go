package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateNotices = flag.Bool("update-notices", false, "write THIRD_PARTY_NOTICES")

// licenseFile is how modules call the files that a copy of them must come with.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.(txt|md))?$`)

// linkedPackage is the output of `go list` for a package of the binary.
type linkedPackage struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// TestThirdPartyNotices holds THIRD_PARTY_NOTICES to the modules that the released binaries are linked from, and to the
// vendored files of the dashboard. `make generate` writes it.
func TestThirdPartyNotices(t *testing.T) {
	t.Parallel()
	texts := map[string][]string{} // who has a license text
	add := func(name, text string) {
		text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
		if !slices.Contains(texts[text], name) {
			texts[text] = append(texts[text], name)
		}
	}
	for _, system := range []string{"linux", "darwin"} {
		for name, files := range linkedLicenses(t, system) {
			require.NotEmpty(t, files, "%s has no license file: see whether it may be linked", name)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				add(name, string(text))
			}
		}
	}
	add("htmx, uPlot and CodeMirror (in the dashboard)", fromRoot(t, "web/static/LICENSES.txt"))
	for _, pattern := range []string{"*.min.js", "*.min.css"} {
		vendored, err := filepath.Glob("../../web/static/" + pattern)
		require.NoError(t, err)
		for _, file := range vendored {
			require.Contains(t, fromRoot(t, "web/static/LICENSES.txt"), filepath.Base(file))
		}
	}
	want := notices(texts)
	if *updateNotices {
		require.NoError(t, os.WriteFile("../../THIRD_PARTY_NOTICES", []byte(want), 0o644))
	}
	require.Equal(t, names(want), names(fromRoot(t, "THIRD_PARTY_NOTICES")), "`make generate` writes it anew")
	same := want == fromRoot(t, "THIRD_PARTY_NOTICES") // 120 kB are not worth a difference on the screen
	require.True(t, same, "a license has changed: `make generate` writes it anew")
}

// linkedLicenses are the license files of each module, between the folders of its linked packages and its own.
func linkedLicenses(t *testing.T, system string) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", ".")
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var wrong bytes.Buffer
	list.Stderr = &wrong
	out, err := list.Output()
	require.NoError(t, err, wrong.String())
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	files := map[string][]string{"Go's standard library": licensesIn(t, strings.TrimSpace(string(root)))}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linkedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		name := p.Module.Path + " " + p.Module.Version
		for dir := p.Dir; len(dir) >= len(p.Module.Dir); dir = filepath.Dir(dir) {
			files[name] = append(files[name], licensesIn(t, dir)...)
		}
	}
}

func licensesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() && licenseFile.MatchString(e.Name()) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// notices is the file: each text once, after all that it is the license of.
func notices(texts map[string][]string) string {
	var out strings.Builder
	out.WriteString("postrider contains the software below. Each list is followed by the license of what it names.\n")
	line := strings.Repeat("=", 80)
	order := map[string]string{}
	for text, of := range texts {
		slices.Sort(of)
		order[strings.Join(of, "\n")+"\n\n"+text] = text
	}
	for _, part := range slices.Sorted(maps.Keys(order)) {
		of := texts[order[part]]
		fmt.Fprintf(&out, "\n%s\n- %s\n\n%s\n", line, strings.Join(of, "\n- "), order[part])
	}
	return out.String()
}

// names are what the file has licenses of.
func names(text string) (list []string) {
	for _, part := range strings.Split(text, "\n"+strings.Repeat("=", 80)+"\n")[1:] {
		head, _, _ := strings.Cut(part, "\n\n")
		list = append(list, strings.Split(head, "\n")...)
	}
	return list
}
