package jobs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clockReaders are the functions of the engine that read the process's clock, and what they do with it. All but one
// only ever subtract one reading from another, which goes by the monotonic clock however wrong the other one is.
var clockReaders = map[string]string{
	"send.go sendAuthorized": "how long a token was waited for",
	"ask.go Ask":             "how long a token was waited for",
	"token.go get":           "how long ago a token was got", "token.go refused": "how long ago a token was got",
	"token.go renew":           "how long ago a token was got",
	"collect.go collectAwhile": "how long nothing was published by SQL", "collect.go collectOnce": "how long a look took",
	"driver.go putOff":            "how long a job is put off",
	"answer.go begin":             "how long a phase of a request took",
	"answer.go firstByte":         "how long a phase of a request took",
	"answer.go got":               "how long a phase of a request took",
	"answer.go end":               "how long a phase of a request took",
	"gate.go join":                "how long ago an endpoint answered",
	"gate.go Leave":               "how long ago an endpoint answered",
	"gate.go Learn":               "how long ago an endpoint answered",
	"gate.go mayWait":             "how long ago an endpoint answered",
	"gate.go room":                "how long ago an endpoint answered",
	"call.go elapsed":             "how long a request took",
	"call.go newCall":             "how long a request took",
	"load.go queueHold":           "the database's time, carried on by what has passed since it was read",
	"cut.go Cut":                  "how long a cut took",
	"cut.go readHeld":             "how long ago held deliveries were looked for from the beginning",
	"cut.go open":                 "how long ago open deliveries were looked for",
	"committer.go flush":          "how long a request has waited",
	"commit.go transact":          "how long a group took",
	"meter.go NewMeter":           "how long ago the process began",
	"meter.go Read":               "how old the last reading is",
	"meterread.go since":          "how long ago the process began",
	"recorder.go flush":           "how long a flush took",
	"work.go Fresh":               "how old a look at the holds is",
	"offer.go commit":             "the database's time, carried on by what has passed since it was read",
	"clock.go Now":                "the database's time, carried on by what has passed since it was read",
	"cache.go Reload":             "the database's time, carried on by what has passed since it was read",
	"confirm.go look":             "how long ago the catalogue was asked for",
	"commit.go begin":             "how old a look at the holds is",
	"idempotency.go postpone":     "how long a request has waited",
	"load.go query":               "how old a look at the holds is",
	"token.go request":            "how long a token lives",
	"clockwork.go sweep":          "how long a pass took",
	"load.go readMembers":         "how old the holds are that were read",
	"handoff.go Next":             "how long ago the database was asked for jobs",
	"handoff.go Fetched":          "how long ago there was a job",
	"work.go Now":                 "the database's time, carried on by what has passed since it was read",
	"load.go readLoaded":          "the database's time, carried on by what has passed since it was read",
	"pastevents.go CountEvents":   "how long it has counted",
	"promote.go Promote":          "how long ago jobs of River's own times were looked for",
	"promote.go promoteScheduled": "how long ago a flood was looked past",
	"remember.go memory":          "how long ago a credential was looked up",
	"signin.go verify":            "how long ago wrong passwords were sent",
	"publish.go Publish":          "how long a request has waited",
	"traffic.go Run":              "how long a sample took",
	// The one time that reaches the database: River asks when a job whose attempt came to no outcome may run again.
	// Promote mends what a wrong clock makes of it, by the database's own stamp.
	"workers.go NextRetry": "when River runs a job again",
}

// The process's clock may be an hour off and nothing changes: whatever decides about a delivery, and whatever is
// stored, goes by the database's. So a new reader of the process's clock has to be looked at, and named here.
func TestTheProcessesClockDecidesNothing(t *testing.T) {
	t.Parallel()
	var found []string
	for _, dir := range []string{"jobs", "catalog", "access", "operator", "postgres", "query", "policy", "event"} {
		found = append(found, readersOfTheClock(t, dir)...)
	}
	slices.Sort(found)
	require.Equal(t, slices.Sorted(maps.Keys(clockReaders)), slices.Compact(found),
		"say what each reader of the clock is for")
}

// clocks are the functions that read the process's clock, by package.
var clocks = map[string][]string{
	"time": {"Now", "Since", "Until"}, "uuid": {"NewUUID", "NewV6", "NewV7", "NewV7FromReader"},
}

// readersOfTheClock lists the functions of a room's files, tests aside, that call one of clocks.
func readersOfTheClock(t *testing.T, room string) (readers []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", room), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if name := nameOf(declaration); readsTheClock(declaration) {
				readers = append(readers, filepath.Base(path)+" "+name)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return readers
}

func nameOf(declaration ast.Decl) string {
	if function, ok := declaration.(*ast.FuncDecl); ok {
		return function.Name.Name
	}
	return "(no function)"
}

func readsTheClock(node ast.Node) (reads bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, named := selector.X.(*ast.Ident)
		reads = reads || named && slices.Contains(clocks[of.Name], selector.Sel.Name)
		return true
	})
	return reads
}
