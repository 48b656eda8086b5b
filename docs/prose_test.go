package docs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	// maxColumns is the length of a line of Markdown outside tables, code and links.
	maxColumns = 100
	// maxParagraphWords is the length of a paragraph or of an item of a list.
	maxParagraphWords = 60
	// maxCellWords is the length of a table cell, a code span counting as one word.
	maxCellWords = 15
)

// unfinished are the files that do not keep the limits yet.
var unfinished = []string{
	"docs/internals/architecture.md",
	"docs/internals/decisions.md",
	"docs/internals/delivery.md",
	"docs/internals/performance.md",
	"docs/internals/reliability.md",
	"docs/internals/security.md",
	"docs/operate/access.md",
	"docs/operate/backup-and-upgrade.md",
	"docs/operate/configure.md",
	"docs/operate/install.md",
	"docs/operate/monitor.md",
	"docs/operate/troubleshoot.md",
	"docs/reference/cli.md",
	"docs/reference/compatibility.md",
	"docs/reference/metrics.md",
	"docs/reference/policies.md",
	"docs/reference/rest.md",
	"docs/reference/settings.md",
	"docs/reference/sql.md",
	"server/openapi/texts.yaml",
}

var (
	// bannedWord is a word that no page, template or API text contains: each has a plain equivalent.
	bannedWord = regexp.MustCompile(`(?i)(?:^|[^a-z])(owed|owes|whoever|nobody|somebody|someone|mend|mended|mending|` +
		`mends|told|tells|came apart|given up|gives up|under way)(?:[^a-z]|$)`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	listItem   = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
)

// proseProblems returns what is wrong with the prose of a Markdown page, by line.
func proseProblems(page string) (problems []string) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%d: ", line)+fmt.Sprintf(format, args...))
	}
	words, began, inCode, inComment := 0, 0, false, false
	endParagraph := func() {
		if words > maxParagraphWords {
			report(began, "a paragraph of %d words, more than %d", words, maxParagraphWords)
		}
		words = 0
	}
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		fence := strings.HasPrefix(text, "```")
		inComment = inComment || strings.HasPrefix(text, "<!--")
		switch {
		case fence || inCode || inComment || text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "<"):
			endParagraph()
			inCode = inCode != fence
			inComment = inComment && !strings.HasSuffix(text, "-->")
		case strings.HasPrefix(text, "|"):
			endParagraph()
			for _, cell := range strings.Split(codeSpan.ReplaceAllString(strings.ReplaceAll(text, `\|`, ""), "code"), "|") {
				if n := len(strings.Fields(linkTarget.ReplaceAllString(cell, "]"))); n > maxCellWords {
					report(number, "a table cell of %d words, more than %d", n, maxCellWords)
				}
			}
		default:
			if listItem.MatchString(line) {
				endParagraph()
			}
			if words == 0 {
				began = number
			}
			words += len(strings.Fields(linkTarget.ReplaceAllString(line, "]")))
			if n := utf8.RuneCountInString(linkTarget.ReplaceAllString(line, "]()")); n > maxColumns {
				report(number, "%d columns, more than %d", n, maxColumns)
			}
		}
	}
	endParagraph()
	return problems
}

func TestProseOfPages(t *testing.T) {
	t.Parallel()
	var problems []string
	for _, name := range markdown(t) {
		if slices.Contains(unfinished, name) {
			continue
		}
		for _, problem := range proseProblems(repository(t, name)) {
			problems = append(problems, name+":"+problem)
		}
	}
	require.Empty(t, problems, strings.Join(problems, "\n"))
}

// Pages, templates and API texts use plain words.
func TestBannedWords(t *testing.T) {
	t.Parallel()
	files := append(markdown(t), "server/openapi/texts.yaml")
	require.NoError(t, filepath.WalkDir("../web/templates", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(filepath.ToSlash(file), "../"))
		}
		return err
	}))
	var found []string
	for _, name := range files {
		if slices.Contains(unfinished, name) {
			continue
		}
		number := 0
		for line := range strings.Lines(repository(t, name)) {
			number++
			for _, match := range bannedWord.FindAllStringSubmatch(line, -1) {
				found = append(found, fmt.Sprintf("%s:%d: %s", name, number, match[1]))
			}
		}
	}
	require.Empty(t, found, strings.Join(found, "\n"))
}

func TestProseProblems(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 61)
	for page, problem := range map[string]string{
		"# Page\n\nshort\n":                                  "",
		strings.Repeat("a", 101) + "\n":                      "1: 101 columns",
		"[a](" + strings.Repeat("b", 101) + ")\n":            "",
		"```\n" + strings.Repeat("a", 101) + "\n```\n":       "",
		"<!-- run\n" + strings.Repeat("a", 101) + "\n-->\n":  "",
		"| " + strings.Repeat("a", 101) + " |\n":             "",
		"| b | " + strings.Repeat("a ", 16) + "|\n":          "1: a table cell of 16 words",
		"| `a b c d e f g h i j k l m n o p q r s t` |\n":    "",
		"a\n\n" + strings.ReplaceAll(long, " ", "\n") + "\n": "3: a paragraph of 61 words",
		"- " + strings.ReplaceAll(long[:5*30], " ", "\n") + "- " + strings.ReplaceAll(long[:5*30], " ", "\n"): "",
	} {
		problems := proseProblems(page)
		if problem == "" {
			require.Empty(t, problems, page)
			continue
		}
		require.Len(t, problems, 1, page)
		require.Contains(t, problems[0], problem)
	}
	for text, banned := range map[string]bool{
		"What is owed": true, "Nobody.": true, "given up": true, "recommended": false, "PostriderNobodyDelivers": false,
		"it mends": true, "a retold story": false,
	} {
		require.Equal(t, banned, bannedWord.MatchString(text), text)
	}
}
