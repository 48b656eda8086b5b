// Command gendocs writes the generated files of this repository, and checks the files that no compiler checks. Run it
// in the root of the repository:
//
//	go run ./internal/gendocs          writes the generated files
//	go run ./internal/gendocs -check   writes nothing, lists what is wrong, and exits with 1 if anything is
//
// The generated files are the OpenAPI document, most pages of docs/reference, the rows of the built-in policies, the
// rules about imports in .golangci.yaml, and THIRD_PARTY_NOTICES.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// generated are the generated files by their paths from the root, and the functions that return their texts.
var generated = []struct {
	file string
	text func(context.Context) (string, error)
}{
	{openAPIFile, openAPIDocument},
	{"docs/reference/cli.md", commandsPage},
	{"docs/reference/configuration.md", configurationPage},
	{"docs/reference/metrics.md", metricsPage},
	{"docs/reference/policies.md", policiesPage},
	{"docs/reference/rest.md", restPage},
	{"docs/reference/settings.md", settingsPage},
	{"docs/reference/sql.md", sqlPage},
	{seedFile, seedSQL},
	{linterFile, linterRules},
	{noticesFile, notices},
}

// checks return what is wrong, one line for each problem.
var checks = []func(*repository) []string{
	linkProblems, namedPageProblems, indexProblems, headingProblems, pageProseProblems, bannedWordProblems,
	compatibilityProblems, mitigationProblems, runTagProblems, statementProblems, vendoredProblems, importListProblems,
}

func main() {
	check := flag.Bool("check", false, "write nothing; list what is wrong, and exit with 1 if anything is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *check, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool, out io.Writer) error {
	if _, err := os.Stat("internal/gendocs/main.go"); err != nil {
		return errors.New("run it in the root of the repository: go run ./internal/gendocs")
	}
	if !check {
		return generate(ctx, func(file, text string) error { return os.WriteFile(file, []byte(text), 0o644) })
	}
	var problems []string
	err := generate(ctx, func(file, text string) error {
		have, err := os.ReadFile(file)
		if at := firstDifference(string(have), text); err == nil && at != "" {
			problems = append(problems, file+at)
		}
		return err
	})
	if len(problems) > 0 {
		problems = append(problems, "write these files with: go run ./internal/gendocs")
	}
	repo, readErr := readRepository(os.DirFS("."))
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, find := range checks {
		problems = append(problems, find(repo)...)
	}
	for _, problem := range problems {
		fmt.Fprintln(out, problem)
	}
	if err == nil && len(problems) > 0 {
		err = errors.New("fix the problems above")
	}
	return err
}

// generate calls use for each generated file. One file that cannot be generated does not prevent the others.
func generate(ctx context.Context, use func(file, text string) error) (err error) {
	for _, g := range generated {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err()) // interrupted
		}
		text, wrong := g.text(ctx)
		if wrong == nil {
			wrong = use(g.file, text)
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("generate %s: %w", g.file, wrong))
		}
	}
	return err
}

// firstDifference returns the number and both versions of the first line that differs, and "" if none does.
func firstDifference(have, want string) string {
	if have == want {
		return ""
	}
	haveLines, wantLines := strings.Split(have, "\n"), strings.Split(want, "\n")
	line := 0
	for line < min(len(haveLines), len(wantLines)) && haveLines[line] == wantLines[line] {
		line++
	}
	show := func(lines []string) string {
		if line == len(lines) {
			return "(end of the file)"
		}
		return fmt.Sprintf("%.150s", lines[line])
	}
	return fmt.Sprintf(":%d: differs from what is generated\n  file:      %s\n  generated: %s", line+1, show(haveLines),
		show(wantLines))
}
