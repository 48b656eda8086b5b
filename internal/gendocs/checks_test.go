package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	v1 "postrider/server/v1"
)

// A summary is an imperative: each verb of the comment loses its s.
func TestSummaries(t *testing.T) {
	t.Parallel()
	comments, err := readComments("../..", "server/v1")
	require.NoError(t, err)
	for want, handler := range map[string]any{
		"List topics by name": (*v1.Handlers).ListTopics, "Create or replace a retry policy": (*v1.Handlers).PutPolicy,
		"Create or change a user": (*v1.Handlers).PutUser,
	} {
		summary, _ := comments.ofHandler(handler)
		require.Equal(t, want, summary)
	}
}

// Each check reports a planted problem, and nothing else.
func TestChecks(t *testing.T) {
	t.Parallel()
	sound := map[string]string{
		"README.md":      "# A\n[Index](docs/README.md) [Changes](CHANGELOG.md) ![picture](docs/img/a.png)\n",
		"CHANGELOG.md":   "# Changes\n",
		"docs/README.md": "# Index\n[Page](page.md), [C](reference/compatibility.md), [S](internals/security.md)\n",
		"docs/page.md":   "# Page\n## A [task](#a-task)\n```sh run\ntrue\n```\n",
		"docs/img/a.png": "",
		compatibilityPage: "# C\n\n## Attempts\n\n" + rowHeader + "\n" + rowRule + "\n| a | ours | b | `policy/TestA` |\n" +
			"\n## Sources\n",
		securityPage:                  "# S\n\n| 1 | a | b | c | `policy/TestA` |\n",
		"policy/a_test.go":            "package policy\n\nfunc TestA(t *testing.T) {}\n",
		"internal/query/a.go":         "package query\n\nvar text = sql(\"list\")\n",
		"internal/query/sql/list.sql": "SELECT 1\n-- part.sql\n",
		"internal/query/sql/part.sql": "LIMIT 1\n",
		"web/static/a.min.js":         "",
		vendoredLicenses:              "a.min.js\nb@1.0.0\n",
		editorLock: `{"packages":{"":{},"node_modules/b":{"version":"1.0.0","license":"MIT"},` +
			`"node_modules/esbuild":{"version":"1.0.0","license":"MIT"}}}`,
	}
	for _, line := range imports {
		for _, name := range strings.Fields(line.packages + " " + line.may) {
			sound[folder(name)+"/x.txt"] = ""
		}
	}
	problems := func(file, text string) (found []string) {
		files := fstest.MapFS{}
		for name, text := range sound {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if text == "" {
			delete(files, file)
		} else {
			files[file] = &fstest.MapFile{Data: []byte(sound[file] + text)}
		}
		r, err := readRepository(files)
		require.NoError(t, err)
		for _, check := range checks {
			found = append(found, check(r)...)
		}
		return found
	}
	require.Empty(t, problems("docs/page.md", "\n"))
	for _, row := range []struct{ file, text, problem string }{
		{"docs/page.md", "[A](none.md)\n", "docs/page.md: no file docs/none.md"},
		{"docs/page.md", "[A](#none)\n", "docs/page.md: no heading docs/page.md#none"},
		{"docs/page.md", "[A](../README.md#none)\n", "docs/page.md: no heading README.md#none"},
		{"docs/page.md", "# Page\n", "docs/page.md: two headings have the same anchor: rename one"},
		{"docs/page.md", "```sh\nfalse\n```\n", "1 of 2 blocks (SQL: false) have the tag run, less than 7 of 8: tag some " +
			"of docs/page.md:6"},
		{"docs/page.md", "a\n\nowed\n", `docs/page.md:8: "owed": use a plain word`},
		{"docs/page.md", "| a b c d e f g h i j k l m n o p |\n", "docs/page.md:6: a table cell of 16 words, more than 15"},
		{"docs/img/a.png", "", "README.md: no file docs/img/a.png"},
		{"policy/b.go", "// See docs/none.md.\n", "policy/b.go: no file docs/none.md"},
		{"docs/new.md", "# New\n", "docs/README.md: has no link to docs/new.md: add it to this index"},
		{"deploy/new.md", "# New\n", "README.md: has no link to deploy/new.md: add it to this index"},
		{compatibilityPage, "\n" + rowHeader + "\n| a | ours | b | `policy/TestB` |\n", compatibilityPage +
			":12: there is no test policy/TestB"},
		{compatibilityPage, "\n## New\n", compatibilityPage + ": the section New has no rows"},
		{securityPage, "| 2 | a | b | c | `policy/TestB` |\n", securityPage + ":4: there is no test policy/TestB"},
		{securityPage, "| 3 | a | b | c | `policy/TestA` |\n", securityPage +
			`:4: row 2 has the number "3": numbers are permanent, add new rows last`},
		{"internal/query/b.go", `sql("none")`, "internal/query/b.go: no file internal/query/sql/none.sql"},
		{"internal/query/sql/b.sql", "SELECT 2\n", "internal/query/sql/b.sql: no statement uses this file: remove it"},
		{"web/static/b.min.css", "a\n", "web/static/b.min.css: web/static/LICENSES.txt has no license of it: add one"},
		{editorLock, "}", editorLock + ": no list of packages: invalid character '}' after top-level value"},
		{"internal/ledger/x.txt", "", "internal/gendocs/imports.go: no package internal/ledger: change the list"},
	} {
		found := problems(row.file, row.text)
		require.NotEmpty(t, found, row.problem)
		for _, problem := range found { // two lists of imports name ledger
			require.Equal(t, row.problem, problem)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	t.Parallel()
	require.Empty(t, firstDifference("a\nb\n", "a\nb\n"))
	require.Equal(t, ":2: differs from what is generated\n  file:      b\n  generated: c", firstDifference("a\nb", "a\nc"))
	require.Equal(t, ":2: differs from what is generated\n  file:      (end of the file)\n  generated: c",
		firstDifference("a", "a\nc"))
}

func TestCompatibilityRowsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"policy/TestThis": true, "cmd/postrider/FuzzThat": true}
	for row, says := range map[string]string{
		"| a | differs | b | `policy/TestThis` |":                           "",
		"| a | differs | b | `policy/TestThis`, `cmd/postrider/FuzzThat` |": "",

		"| a | not offered | | |":                                 "",
		"| a | ours | b | `policy/TestThis` |":                    "",
		"| a | | | `policy/TestThis` |":                           `the status ""`,
		"| a | equal | b | `policy/TestThis` |":                   `the status "equal"`,
		"| a | ours | b | |":                                      "no test is cited",
		"| a | ours | b | TODO |":                                 "no test is cited",
		"| a | ours | b | `policy/TestThis`, `policy/Testing|` |": "4 columns",
		"| a | ours | b | `policy/TestThis`, policy/TestOther |":  `"policy/TestOther" is not a citation`,
		"| a | ours | b | `policy/TestOther` |":                   "there is no test policy/TestOther",
		"| a | not offered | b | `jobs/TestThis` |":               "there is no test jobs/TestThis",
		"| a | differs | | `policy/TestThis` |":                   "Here is empty",
		"| a | ours | | `policy/TestThis` |":                      "Here is empty",
		"| a | ours | `policy/TestThis` |":                        "4 columns",
		"- a `policy/TestThis`":                                   "",

		"- a\n  `policy/TestThis`\n  `cmd/postrider/FuzzThat`\n\nA note:\n\n- without a test": "",
		"- a":                       "no test is cited",
		"- a\n  `policy/TestOther`": "there is no test policy/TestOther",
	} {
		before := rowHeader + "\n" + rowRule + "\n"
		if strings.HasPrefix(row, "-") {
			before = equalList + "\n\n"
		}
		problems, rows := rowProblems("# Page\n\n"+before+row+"\n", tests)
		require.Equal(t, 1, rows, row)
		if says == "" {
			require.Empty(t, problems, row)
			continue
		}
		require.NotEmpty(t, problems, row)
		require.Contains(t, problems[0], "5: ", row)
		require.Contains(t, strings.Join(problems, "\n"), says, row)
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		map[string]bool{"deadletters---deliveries-what-sql-takes": true, "javascript-azureeventgrid": true, "a-b": true},
		anchors("## deadletters --deliveries: what SQL takes\n### JavaScript: `@azure/eventgrid`\n```\n# no\n```\n# "+
			"[A](b.md) b\n"))
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
		"What is owed": true, "Nobody.": true, "given up": true, "recommended": false, "PostriderNoNodeDelivers": false,
		"it mends": true, "a retold story": false,
	} {
		require.Equal(t, banned, bannedWord.MatchString(text), text)
	}
}
