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
)

// namedTest is a test as the page names it: folder and function.
var namedTest = regexp.MustCompile("`([a-z][a-z/]*)/((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// rowProblems returns the mistakes of a page of rows, and its number of rows.
func rowProblems(page string, tests map[string]bool) (problems []string, rows int) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
	}
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || line == rowHeader || line == rowRule {
			continue
		}
		rows++
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			report(number, "a row has four columns, this one %d", len(cells)-2)
			continue
		}
		status, here, named := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]),
			namedTest.FindAllStringSubmatch(cells[4], -1)
		switch {
		case !slices.Contains([]string{"equal", "different on purpose", "ours", "not offered"}, status):
			report(number, "%q is not a status", status)
		case (status == "different on purpose" || status == "ours") && here == "":
			report(number, "it does not say what is different")
		case status != "not offered" && len(named) == 0:
			report(number, "it names no test")
		}
		for _, test := range named {
			if name := test[1] + "/" + test[2]; !tests[name] {
				report(number, "there is no test %s", name)
			}
		}
		if left := strings.Trim(namedTest.ReplaceAllString(cells[4], ""), " ,"); left != "" {
			report(number, "%q names no test", left)
		}
	}
	return problems, rows
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
	require.Greater(t, rows, 190)
	require.Equal(t, strings.Count(page, "\n## "), strings.Count(page, "\n"+rowHeader+"\n"+rowRule+"\n"),
		"each section is a table of rows")
}

func TestCompatibilityRowsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"policy/TestThis": true, "cmd/postrider/FuzzThat": true}
	for row, says := range map[string]string{
		"| a | equal | | `policy/TestThis` |":                             "",
		"| a | equal | b | `policy/TestThis`, `cmd/postrider/FuzzThat` |": "",
		"| a | different on purpose | b | `policy/TestThis` |":            "",
		"| a | not offered | | |":                                         "",
		"| a | | | `policy/TestThis` |":                                   `"" is not a status`,
		"| a | Equal | | `policy/TestThis` |":                             `"Equal" is not a status`,
		"| a | equal | b | |":                                             "names no test",
		"| a | equal | b | TODO |":                                        "names no test",
		"| a | equal | b | `policy/TestThis`, `policy/Testing|` |":        "four columns",
		"| a | equal | b | `policy/TestThis`, policy/TestOther |":         `"policy/TestOther" names no test`,
		"| a | equal | b | `policy/TestOther` |":                          "there is no test policy/TestOther",
		"| a | not offered | b | `jobs/TestThis` |":                       "there is no test jobs/TestThis",
		"| a | different on purpose | | `policy/TestThis` |":              "does not say what is different",
		"| a | ours | b | `policy/TestThis` |":                            "",
		"| a | ours | | `policy/TestThis` |":                              "does not say what is different",
		"| a | equal | `policy/TestThis` |":                               "four columns",
	} {
		problems, rows := rowProblems("# Page\n\n"+rowHeader+"\n"+rowRule+"\n"+row+"\n", tests)
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
