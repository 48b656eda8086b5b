package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// typedBlock is a block of commands for a shell or psql. Blocks tagged "run" are run by a test, "run eventually" until
	// they succeed. A test also runs <!-- run … -->: preparations that readers do not need.
	typedBlock = regexp.MustCompile("(?ms)^( *)```(sh|bash|shell|console|sql)((?: [a-z]+)*)\n(.*?)^ *```|^<!-- " +
		"run\n(.*?)^-->")
	// goesOn is a line that does not end by itself, and so is typed into a second terminal.
	goesOn = regexp.MustCompile(`(?:^|[\s;&|])(?:bin/)?postrider (?:serve|dev|listen|sink|tail)\b`)
	// notOurs is what a page writes to or reads from where this test may not: it is below the page's own folder instead.
	notOurs = regexp.MustCompile(`/(?:etc|var/lib|usr/local)/`)
)

// examplePlaces are what stands in the pages for what each reader has another one of.
var examplePlaces = strings.NewReplacer(
	"postgres://postrider:secret@db:5432/postrider", "$OWN_DATABASE_URL",
	"0.0.0.0:7480", "$POSTRIDER_LISTEN",
	// it prompts for the name
	"doctor --endpoint https://billing.example.com/events", "doctor --endpoint $SINK/ok",
	"0.0.0.0:8080", "127.0.0.1:0",
)

// pageBlock is one of them.
type pageBlock struct {
	language, text string
	run, retry     bool
	line           int
}

// documentPages returns every page for readers, by its path from the root of the repository.
func documentPages(t *testing.T) (names []string) {
	t.Helper()
	root := ".."
	names = []string{"README.md"}
	for _, folder := range []string{"docs", "deploy"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if filepath.Ext(file) == ".md" {
				names = append(names, strings.TrimPrefix(filepath.ToSlash(file), "../"))
			}
			return err
		}))
	}
	require.Contains(t, names, "docs/start/quickstart.md")
	return names
}

func pageBlocks(page string) (blocks []pageBlock) {
	for _, at := range typedBlock.FindAllStringSubmatchIndex(page, -1) {
		part := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return page[at[2*n]:at[2*n+1]]
		}
		tags := strings.Fields(part(3))
		b := pageBlock{language: part(2), text: part(4) + part(5), line: 2 + strings.Count(page[:at[0]], "\n")}
		b.run = b.language == "" || len(tags) > 0 && tags[0] == "run"
		b.retry = len(tags) > 1 && tags[1] == "eventually"
		blocks = append(blocks, b)
	}
	return blocks
}

// pageScript is what of a page is typed, as one shell's; "" where nothing is.
func pageScript(name, page, dir string) string {
	var lines strings.Builder
	for _, b := range pageBlocks(page) {
		if !b.run {
			continue
		}
		fmt.Fprintf(&lines, "at=%s:%d\n", name, b.line)
		text := notOurs.ReplaceAllString(examplePlaces.Replace(b.text), dir+"$0")
		switch {
		case b.language == "sql":
			text = "sql <<'END_OF_BLOCK'\n" + text + "END_OF_BLOCK\n"
		case !b.retry:
			text = typedLines(text)
		}
		if b.retry {
			text = "try " + quoted(text) + "\n"
		}
		lines.WriteString(text)
	}
	return lines.String()
}

// typedLines runs lines that do not end in the background.
func typedLines(text string) string {
	var out, line strings.Builder
	for part := range strings.Lines(text) {
		line.WriteString(part)
		if strings.HasSuffix(part, "\\\n") {
			continue
		}
		if goesOn.MatchString(line.String()) {
			fmt.Fprintf(&out, "aside %s\n", quoted(line.String()))
		} else {
			out.WriteString(line.String())
		}
		line.Reset()
	}
	return out.String() + line.String()
}

// quoted is the text as one word of the shell's.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// pageFolder is a folder with the program, called as the pages call it, and with the examples.
func pageFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	caller, err := os.ReadFile("testdata/docsrun-postrider.sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "postrider"), caller, 0o755))
	from, err := filepath.Abs("../deploy")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(from, filepath.Join(dir, "deploy")))
	return dir
}
