package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// relativeLink is the target of a link or a picture within the repository.
	relativeLink = regexp.MustCompile(`\]\(([^)\s:]+)\)|(?:src|srcset|href)="([^":]+)"`)
	// namedPage is a page, perhaps with a heading, that the code or a configuration refers its reader to.
	namedPage = regexp.MustCompile(`\bdocs/[A-Za-z/-]+\.md(?:#[a-z0-9_-]+)?`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// notInAnchors are the characters that GitHub leaves out of a heading's anchor.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkedText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors are those of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(linkedText.ReplaceAllString(strings.TrimSpace(h[1]), "$1"))
		found[strings.ReplaceAll(notInAnchors.ReplaceAllString(text, ""), " ", "-")] = true
	}
	return found
}

// repository reads a file by its path from the root.
func repository(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(raw)
}

// brokenLink returns what is wrong with a target, which is a path from the root, with or without an anchor.
func brokenLink(t *testing.T, from, target string) []string {
	t.Helper()
	name, anchor, _ := strings.Cut(target, "#")
	if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(name))); err != nil {
		return []string{from + ": no file " + target}
	}
	if anchor != "" && !anchors(repository(t, name))[anchor] {
		return []string{from + ": no heading " + target}
	}
	return nil
}

// markdown returns every page of the repository that is for readers, by its path from the root.
func markdown(t *testing.T) (names []string) {
	t.Helper()
	names = []string{"README.md", "CHANGELOG.md"}
	for _, folder := range []string{"docs", "deploy"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", folder), func(file string, _ fs.DirEntry, err error) error {
			if filepath.Ext(file) == ".md" {
				names = append(names, strings.TrimPrefix(filepath.ToSlash(file), "../"))
			}
			return err
		}))
	}
	require.Greater(t, len(names), 30)
	return names
}

// Every link and every picture leads to an existing file, and to one of its headings.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	var broken []string
	links := 0
	for _, name := range markdown(t) {
		for _, found := range relativeLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(repository(t, name), ""), -1) {
			links++
			target := found[1] + found[2]
			if strings.HasPrefix(target, "#") {
				broken = append(broken, brokenLink(t, name, name+target)...)
				continue
			}
			broken = append(broken, brokenLink(t, name, path.Join(path.Dir(name), target))...)
		}
	}
	require.Empty(t, broken)
	require.Greater(t, links, 150)
}

// The pages that the program, its help and its configuration name exist.
func TestPagesThatTheCodeNamesExist(t *testing.T) {
	t.Parallel()
	var broken []string
	named := 0
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(file) {
		case ".go", ".sql", ".yaml", ".html", ".service", ".json", ".md":
			for _, target := range namedPage.FindAllString(repository(t, strings.TrimPrefix(filepath.ToSlash(file), "../")),
				-1) {
				named++
				broken = append(broken, brokenLink(t, file, target)...)
			}
		}
		return nil
	}))
	require.Empty(t, broken)
	require.Greater(t, named, 50)
}

// docs/README.md links every page of the documentation, and README.md links every other index.
func TestAnIndexLinksEveryPage(t *testing.T) {
	t.Parallel()
	readme, index := repository(t, "README.md"), repository(t, "docs/README.md")
	for _, name := range markdown(t) {
		if page, inDocs := strings.CutPrefix(name, "docs/"); inDocs && page != "README.md" {
			require.Contains(t, index, "]("+page+")", "docs/README.md has no link to %s", name)
		} else if name != "README.md" {
			require.Contains(t, readme, "]("+name+")", "README.md has no link to %s", name)
		}
	}
}

// Two headings with the same anchor cannot both be linked.
func TestHeadingsOfAPageDiffer(t *testing.T) {
	t.Parallel()
	for _, name := range markdown(t) {
		page := repository(t, name)
		headings := heading.FindAllString(codeBlock.ReplaceAllString(page, ""), -1)
		require.Len(t, anchors(page), len(headings), name)
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		map[string]bool{"deadletters---deliveries-what-sql-takes": true, "javascript-azureeventgrid": true, "a-b": true},
		anchors("## deadletters --deliveries: what SQL takes\n### JavaScript: `@azure/eventgrid`\n```\n# no\n```\n# "+
			"[A](b.md) b\n"))
}
