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
	namedPage = regexp.MustCompile(`\bdocs/[a-z-]+\.md(?:#[a-z0-9_-]+)?`)
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

// requireThere requires that the target, a path from the root and perhaps an anchor, exists.
func requireThere(t *testing.T, from, target string) {
	t.Helper()
	name, anchor, _ := strings.Cut(target, "#")
	_, err := os.Stat(filepath.Join("..", filepath.FromSlash(name)))
	require.NoError(t, err, "%s leads to %s", from, target)
	if anchor != "" {
		require.True(t, anchors(repository(t, name))[anchor], "%s leads to %s, and that page has no such heading",
			from, target)
	}
}

func markdown(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md", "deploy/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, file := range found {
			names = append(names, strings.TrimPrefix(filepath.ToSlash(file), "../"))
		}
	}
	return names
}

// Every link and every picture leads to a file that is there, and to one of its headings.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for _, name := range markdown(t) {
		for _, found := range relativeLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(repository(t, name), ""), -1) {
			links++
			target := found[1] + found[2]
			if strings.HasPrefix(target, "#") {
				requireThere(t, name, name+target)
				continue
			}
			requireThere(t, name, path.Join(path.Dir(name), target))
		}
	}
	require.Greater(t, links, 150)
}

// What the program, its help and its configuration refer to is there, too.
func TestPagesThatTheCodeNamesAreThere(t *testing.T) {
	t.Parallel()
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
				requireThere(t, file, target)
			}
		}
		return nil
	}))
	require.Greater(t, named, 50)
}

// The README has every page, and no page is left that only its own links lead to.
func TestReadmeListsEveryPage(t *testing.T) {
	t.Parallel()
	readme := repository(t, "README.md")
	for _, name := range markdown(t) {
		if strings.HasPrefix(name, "docs/") {
			require.Contains(t, readme, "]("+name+")", "the list of pages")
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		map[string]bool{"deadletters---deliveries-what-sql-takes": true, "javascript-azureeventgrid": true, "a-b": true},
		anchors("## deadletters --deliveries: what SQL takes\n### JavaScript: `@azure/eventgrid`\n```\n# no\n```\n# "+
			"[A](b.md) b\n"))
}
