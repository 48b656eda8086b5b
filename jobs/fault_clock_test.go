package jobs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clockReaders are the functions of the engine that read the process's clock, and what they do with it. All but one only ever
// subtract one reading from another, which goes by the monotonic clock however wrong the other one is.
var clockReaders = map[string]string{
	"jobs/authorize.go authorize": "how long a token was waited for", "jobs/authorize.go askAuthorized": "how long a token was waited for",
	"jobs/token.go get": "how long ago a token was got", "jobs/token.go refused": "how long ago a token was got", "jobs/token.go renew": "how long ago a token was got",
	"jobs/collect.go collectAwhile": "how long nothing was published by SQL", "jobs/collect.go collectOnce": "how long a look took",
	"jobs/driver.go putOff":              "how long a job is put off",
	"jobs/endpoint.go begin":             "how long a phase of a request took",
	"jobs/endpoint.go firstByte":         "how long a phase of a request took",
	"jobs/endpoint.go got":               "how long a phase of a request took",
	"jobs/endpoint.go end":               "how long a phase of a request took",
	"jobs/gate.go join":                  "how long ago an endpoint answered",
	"jobs/gate.go leave":                 "how long ago an endpoint answered",
	"jobs/gate.go learn":                 "how long ago an endpoint answered",
	"jobs/gate.go mayWait":               "how long ago an endpoint answered",
	"jobs/gate.go room":                  "how long ago an endpoint answered",
	"jobs/late.go elapsed":               "how long a request took",
	"jobs/late.go newCall":               "how long a request took",
	"store/batch.go fillBatch":           "the database's time, carried on by what has passed since it was read",
	"store/batchcut.go cutBatch":         "how long a cut took",
	"store/batchcut.go readHeld":         "how long ago held deliveries were looked for from the beginning",
	"store/batchcut.go open":             "how long ago open deliveries were looked for",
	"store/committer.go flush":           "how long a request has waited",
	"store/commit.go transact":           "how long a group took",
	"store/meter.go NewMeter":            "how long ago the process began",
	"store/meter.go Read":                "how old the last reading is",
	"store/meterread.go since":           "how long ago the process began",
	"store/recorder.go flush":            "how long a flush took",
	"store/handover.go Fresh":            "how old a look at the holds is",
	"store/handover.go done":             "the database's time, carried on by what has passed since it was read",
	"store/clock.go Now":                 "the database's time, carried on by what has passed since it was read",
	"store/catalogue.go Reload":          "the database's time, carried on by what has passed since it was read",
	"store/confirm.go look":              "how long ago the catalogue was asked for",
	"store/commit.go commit":             "how old a look at the holds is",
	"store/idempotency.go claimAndStore": "how old a look at the holds is",
	"store/idempotency.go postpone":      "how long a request has waited",
	"store/commit.go commitFiltered":     "how old a look at the holds is",
	"store/loader.go query":              "how old a look at the holds is",
	"jobs/hands.go next":                 "how long ago the database was asked for jobs",
	"jobs/hands.go fetched":              "how long ago there was a job",
	"store/loader.go Now":                "the database's time, carried on by what has passed since it was read",
	"store/loader.go readWork":           "the database's time, carried on by what has passed since it was read",
	"store/pastevents.go CountEvents":    "how long it has counted",
	"store/promote.go Promote":           "how long ago jobs of River's own times were looked for",
	"store/promote.go promoteScheduled":  "how long ago a flood was looked past",
	"store/remember.go memory":           "how long ago a credential was looked up",
	"store/publish.go Publish":           "how long a request has waited",
	"store/traffic.go run":               "how long a sample took",
	// The one time that reaches the database: River asks when a job whose attempt came to no outcome may run again. Promote
	// mends what a wrong clock makes of it, by the database's own stamp.
	"jobs/engine.go NextRetry": "when River runs a job again",
}

// The process's clock may be an hour off and nothing changes: whatever decides about a delivery, and whatever is stored, goes by
// the database's. So a new reader of the process's clock has to be looked at, and named here.
func TestTheProcessesClockDecidesNothing(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, room := range []string{"jobs", "store", "policy", "event"} {
		for _, reader := range readersOfTheClock(t, room) {
			require.Contains(t, clockReaders, reader, "it reads the process's clock: what for?")
			found[reader] = true
		}
	}
	for reader := range clockReaders {
		require.True(t, found[reader], "%s reads no clock any more", reader)
	}
}

// clocks are the functions that read the process's clock, by package.
var clocks = map[string][]string{"time": {"Now", "Since", "Until"}, "uuid": {"NewUUID", "NewV6", "NewV7", "NewV7FromReader"}}

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
				readers = append(readers, room+"/"+filepath.Base(path)+" "+name)
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
