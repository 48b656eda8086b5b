package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	rowHeader = "| Event Grid | Status | Here | Test |"
	rowRule   = "|---|---|---|---|"
	equalList = "Equal:"

	compatibilityPage = "docs/reference/compatibility.md"
	securityPage      = "docs/internals/security.md"
)

// namedTest is a test as pages cite it: folder and function.
var namedTest = regexp.MustCompile("`([a-z][a-z0-9/]*/(?:Test|Fuzz)[A-Za-z0-9_]+)`")

// compatibilityProblems checks that each statement of the page has a valid row and cites existing tests.
func compatibilityProblems(r *repository) (problems []string) {
	tests := r.tests()
	found, _ := rowProblems(r.texts[compatibilityPage], tests)
	for _, problem := range found {
		problems = append(problems, compatibilityPage+":"+problem)
	}
	for _, section := range strings.Split(r.texts[compatibilityPage], "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		if _, rows := rowProblems(text, tests); rows == 0 && title != "Sources" {
			problems = append(problems, fmt.Sprintf("%s: the section %s has no rows", compatibilityPage, title))
		}
	}
	return problems
}

// mitigationProblems checks that the rows of the security page are numbered and cite existing tests.
func mitigationProblems(r *repository) (problems []string) {
	tests, rows, number := r.tests(), 0, 0
	for line := range strings.Lines(r.texts[securityPage]) {
		number++
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || strings.Contains(line, "---") || strings.Contains(line, "| Test |") {
			continue
		}
		rows++
		found := testProblems(cells[5], true, tests)
		if have := strings.TrimSpace(cells[1]); have != strconv.Itoa(rows) {
			found = append(found, fmt.Sprintf("row %d has the number %q: numbers are permanent, add new rows last", rows, have))
		}
		for _, problem := range found {
			problems = append(problems, fmt.Sprintf("%s:%d: %s", securityPage, number, problem))
		}
	}
	if rows == 0 {
		problems = append(problems, securityPage+": no table of mitigations found")
	}
	return problems
}

// rowProblems returns the problems of the rows of tables and of the items of the lists "Equal", and the number of both.
func rowProblems(page string, tests map[string]bool) (problems []string, rows int) {
	report := func(line int, problem string) {
		problems = append(problems, fmt.Sprintf("%d: %s", line, problem))
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

// cellProblems returns the problems of the cells of a row.
func cellProblems(cells []string, tests map[string]bool) (problems []string) {
	if len(cells) != 6 {
		return []string{fmt.Sprintf("a row has 4 columns, not %d", len(cells)-2)}
	}
	status, here := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
	if !slices.Contains([]string{"differs", "ours", "not offered"}, status) {
		problems = append(problems, fmt.Sprintf("the status %q must be differs, ours or not offered", status))
	} else if status != "not offered" && here == "" {
		problems = append(problems, "the column Here is empty")
	}
	if left := strings.Trim(namedTest.ReplaceAllString(cells[4], ""), " ,"); left != "" {
		problems = append(problems, fmt.Sprintf("%q is not a citation such as `policy/TestName`", left))
	}
	return append(problems, testProblems(cells[4], status != "not offered", tests)...)
}

// testProblems returns the cited tests that do not exist, and whether a required citation is missing.
func testProblems(text string, required bool, tests map[string]bool) (problems []string) {
	named := namedTest.FindAllStringSubmatch(text, -1)
	if required && len(named) == 0 {
		problems = append(problems, "no test is cited")
	}
	for _, test := range named {
		if !tests[test[1]] {
			problems = append(problems, "there is no test "+test[1])
		}
	}
	return problems
}
