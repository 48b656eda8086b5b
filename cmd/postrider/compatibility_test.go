package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	rowHeader = "| Event Grid | Status | Here | Test |"
	rowRule   = "|---|---|---|---|"
	equalList = "Equal:"
)

// namedTest is a test as the page names it: folder and function.
var namedTest = regexp.MustCompile("`([a-z][a-z/]*)/((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// rowProblems returns the mistakes of a page of rows and of lists of what is equal, and the number of both.
func rowProblems(page string, tests map[string]bool) (problems []string, rows int) {
	report := func(line int, problem string) {
		problems = append(problems, fmt.Sprintf("line %d: %s", line, problem))
	}
	lines := strings.Split(page, "\n")
	inEqual := false
	for i := 0; i < len(lines); i++ {
		number, line := i+1, strings.TrimSpace(lines[i])
		switch {
		case line == equalList:
			inEqual = true
		case inEqual && strings.HasPrefix(line, "- "):
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
				i++
				line += lines[i][1:]
			}
			rows++
			for _, problem := range testProblems(line, true, tests) {
				report(number, problem)
			}
		case !strings.HasPrefix(line, "|"):
			inEqual = inEqual && line == ""
		case line != rowHeader && line != rowRule:
			rows++
			for _, problem := range cellProblems(strings.Split(line, "|"), tests) {
				report(number, problem)
			}
		}
	}
	return problems, rows
}

// cellProblems returns the mistakes of the cells of a row.
func cellProblems(cells []string, tests map[string]bool) (problems []string) {
	if len(cells) != 6 {
		return []string{fmt.Sprintf("a row has four columns, this one %d", len(cells)-2)}
	}
	status, here := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
	if !slices.Contains([]string{"differs", "ours", "not offered"}, status) {
		problems = append(problems, fmt.Sprintf("%q is not a status", status))
	} else if status != "not offered" && here == "" {
		problems = append(problems, "it does not say what is different")
	}
	if left := strings.Trim(namedTest.ReplaceAllString(cells[4], ""), " ,"); left != "" {
		problems = append(problems, fmt.Sprintf("%q names no test", left))
	}
	return append(problems, testProblems(cells[4], status != "not offered", tests)...)
}

// testProblems returns the tests that a text names and that do not exist, or that it must name one.
func testProblems(text string, required bool, tests map[string]bool) (problems []string) {
	named := namedTest.FindAllStringSubmatch(text, -1)
	if required && len(named) == 0 {
		problems = append(problems, "it names no test")
	}
	for _, test := range named {
		if name := test[1] + "/" + test[2]; !tests[name] {
			problems = append(problems, "there is no test "+name)
		}
	}
	return problems
}

// testsOf finds every test function below a folder, as the page names it.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, declared := range file.Decls {
			if f, isFunc := declared.(*ast.FuncDecl); isFunc && f.Recv == nil {
				tests[filepath.ToSlash(folder)+"/"+f.Name.Name] = true
			}
		}
		return err
	}))
	return tests
}

// Every row of the page names existing tests.
func TestCompatibilityRowsNameTheirTests(t *testing.T) {
	t.Parallel()
	tests := testsOf(t, filepath.Join("..", ".."))
	require.Greater(t, len(tests), 500)
	page := fromRoot(t, "docs/reference/compatibility.md")
	problems, rows := rowProblems(page, tests)
	require.Empty(t, problems)
	require.Greater(t, rows, 180)
	for _, section := range strings.Split(page, "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		_, rows := rowProblems(text, tests)
		require.Equal(t, title != "Sources", rows > 0, title)
	}
}

func TestCompatibilityRowsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"policy/TestThis": true, "cmd/postrider/FuzzThat": true}
	for row, says := range map[string]string{
		"| a | differs | b | `policy/TestThis` |":                           "",
		"| a | differs | b | `policy/TestThis`, `cmd/postrider/FuzzThat` |": "",

		"| a | not offered | | |":                                 "",
		"| a | ours | b | `policy/TestThis` |":                    "",
		"| a | | | `policy/TestThis` |":                           `"" is not a status`,
		"| a | equal | b | `policy/TestThis` |":                   `"equal" is not a status`,
		"| a | ours | b | |":                                      "names no test",
		"| a | ours | b | TODO |":                                 "names no test",
		"| a | ours | b | `policy/TestThis`, `policy/Testing|` |": "four columns",
		"| a | ours | b | `policy/TestThis`, policy/TestOther |":  `"policy/TestOther" names no test`,
		"| a | ours | b | `policy/TestOther` |":                   "there is no test policy/TestOther",
		"| a | not offered | b | `jobs/TestThis` |":               "there is no test jobs/TestThis",
		"| a | differs | | `policy/TestThis` |":                   "does not say what is different",
		"| a | ours | | `policy/TestThis` |":                      "does not say what is different",
		"| a | ours | `policy/TestThis` |":                        "four columns",
		"- a `policy/TestThis`":                                   "",

		"- a\n  `policy/TestThis`\n  `cmd/postrider/FuzzThat`\n\nA note:\n\n- without a test": "",
		"- a":                       "names no test",
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
		require.Contains(t, problems[0], "line 5: ", row)
		require.Contains(t, strings.Join(problems, "\n"), says, row)
	}
}
