package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// repository has the files that the checks read.
type repository struct {
	root  fs.FS
	names []string          // of all files, sorted
	texts map[string]string // of source files and pages
}

// sources are the extensions of the files that are read.
var sources = []string{".go", ".sql", ".yaml", ".html", ".service", ".json", ".md", ".txt"}

func readRepository(root fs.FS) (*repository, error) {
	r := &repository{root: root, texts: map[string]string{}}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		r.names = append(r.names, name)
		if slices.Contains(sources, path.Ext(name)) {
			raw, err := fs.ReadFile(root, name)
			r.texts[name] = string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the repository: %w", err)
	}
	return r, nil
}

// in returns the files of a folder, and of the folders below it, with one of the extensions.
func (r *repository) in(folder string, extensions ...string) (names []string) {
	for _, name := range r.names {
		if (folder == "." || strings.HasPrefix(name, folder+"/")) && slices.Contains(extensions, path.Ext(name)) {
			names = append(names, name)
		}
	}
	return names
}

// plants reports whether a file has mistakes on purpose: a test of the checks, or the list of banned words.
func plants(name string) bool {
	return name == "internal/gendocs/prose.go" ||
		path.Dir(name) == "internal/gendocs" && strings.HasSuffix(name, "_test.go")
}

// pages returns the Markdown pages for readers.
func (r *repository) pages() []string {
	return slices.Concat([]string{"README.md", "CHANGELOG.md"}, r.in("docs", ".md"), r.in("deploy", ".md"))
}

func (r *repository) exists(name string) bool {
	_, err := fs.Stat(r.root, name)
	return err == nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// tests returns all test functions, as pages cite them: folder and name.
func (r *repository) tests() map[string]bool {
	tests := map[string]bool{}
	for _, name := range r.in(".", ".go") {
		if strings.HasSuffix(name, "_test.go") {
			for _, found := range testFunction.FindAllStringSubmatch(r.texts[name], -1) {
				tests[path.Dir(name)+"/"+found[1]] = true
			}
		}
	}
	return tests
}
