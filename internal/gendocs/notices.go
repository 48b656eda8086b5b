package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	noticesFile = "THIRD_PARTY_NOTICES"
	// vendoredLicenses are those of the dashboard's scripts and styles.
	vendoredLicenses = "web/static/LICENSES.txt"
	editorLock       = "web/editor/package-lock.json"
)

// licenseFile matches the names of the files that a copy of a module must include.
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

// notices returns the licenses of the modules that the released binaries are linked from, and of the vendored files of
// the dashboard. Each text is there once, after the names of all that it is the license of.
func notices(ctx context.Context) (string, error) {
	names := map[string][]string{} // by text
	add := func(name, file string) error {
		raw, err := os.ReadFile(file)
		text := strings.TrimSpace(strings.ReplaceAll(string(raw), "\r\n", "\n"))
		if !slices.Contains(names[text], name) {
			names[text] = append(names[text], name)
		}
		return err
	}
	for _, system := range []string{"linux", "darwin"} {
		linked, err := linkedLicenses(ctx, system)
		if err != nil {
			return "", err
		}
		for name, files := range linked {
			if len(files) == 0 {
				return "", fmt.Errorf("%s has no license file: check whether the program may be linked with it", name)
			}
			for _, file := range files {
				if err := add(name, file); err != nil {
					return "", err
				}
			}
		}
	}
	if err := add("htmx, uPlot and CodeMirror (in the dashboard)", vendoredLicenses); err != nil {
		return "", err
	}
	parts := map[string]string{}
	for text, of := range names {
		slices.Sort(of)
		list := strings.Join(of, "\n- ")
		parts[list+"\n\n"+text] = fmt.Sprintf("\n%s\n- %s\n\n%s\n", strings.Repeat("=", 80), list, text)
	}
	var out strings.Builder
	out.WriteString("postrider contains the software below. Each list is followed by the license of what it names.\n")
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		out.WriteString(parts[key])
	}
	return out.String(), nil
}

// linkedLicenses returns the license files of each module, in the folders of its linked packages and those above them.
func linkedLicenses(ctx context.Context, system string) (map[string][]string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/postrider")
	list.Env = append(list.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	out, err := output(list)
	if err != nil {
		return nil, err
	}
	root, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	if files["Go's standard library"], err = licensesIn(strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linkedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, err
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		name := p.Module.Path + " " + p.Module.Version
		for dir := p.Dir; len(dir) >= len(p.Module.Dir); dir = filepath.Dir(dir) {
			found, err := licensesIn(dir)
			if err != nil {
				return nil, err
			}
			files[name] = append(files[name], found...)
		}
	}
}

func licensesIn(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() && licenseFile.MatchString(e.Name()) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// vendoredProblems returns the vendored files of the dashboard whose licenses are not recorded.
func vendoredProblems(r *repository) (problems []string) {
	for _, name := range r.in("web/static", ".js", ".css") {
		file := path.Base(name)
		if strings.Contains(file, ".min.") && !strings.Contains(r.texts[vendoredLicenses], file) {
			problems = append(problems, fmt.Sprintf("%s: %s has no license of it: add one", name, vendoredLicenses))
		}
	}
	return append(problems, editorProblems(r)...)
}

// editorProblems returns the packages of the dashboard's editor whose licenses are not recorded.
func editorProblems(r *repository) (problems []string) {
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	if err := json.Unmarshal([]byte(r.texts[editorLock]), &lock); err != nil || len(lock.Packages) == 0 {
		return []string{fmt.Sprintf("%s: no list of packages: %v", editorLock, err)}
	}
	for place, p := range lock.Packages {
		name := strings.TrimPrefix(place, "node_modules/")
		if name == "" || strings.Contains(name, "esbuild") { // this package, and what builds it
			continue
		}
		if p.License != "MIT" || !strings.Contains(r.texts[vendoredLicenses], name+"@"+p.Version+"\n") {
			problems = append(problems, fmt.Sprintf("%s: %s has no license of %s@%s (%s): add it",
				editorLock, vendoredLicenses, name, p.Version, p.License))
		}
	}
	return problems
}
