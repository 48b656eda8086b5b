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

// clockReaders are the functions of the engine that read the process's clock, and their purpose. All but one only
// subtract two readings, which uses the monotonic clock.
var clockReaders = map[string]string{
	"client.go sendAuthorized":       "how long the request of a token took",
	"handshake.go SendHandshake":     "how long the request of a token took",
	"token.go get":                   "the age of a token",
	"token.go rejected":              "the age of a token",
	"token.go renew":                 "the age of a token",
	"token.go request":               "the lifetime of a token",
	"collect.go collect":             "how long no publish by SQL was found",
	"collect.go collectOnce":         "how long a search took",
	"driver.go deferred":             "how long a job is deferred",
	"response.go begin":              "how long a phase of a request took",
	"response.go end":                "how long a phase of a request took",
	"response.go firstByte":          "how long a phase of a request took",
	"response.go connected":          "how long a phase of a request took",
	"late.go elapsed":                "how long a request took",
	"late.go newCall":                "how long a request took",
	"loops.go sweep":                 "how long a pass took",
	"gate.go join":                   "how long ago an endpoint responded",
	"gate.go Leave":                  "how long ago an endpoint responded",
	"gate.go noteEnd":                "how long ago an endpoint responded",
	"gate.go mayWait":                "how long ago an endpoint responded",
	"conn.go usable":                 "how long a connection was idle",
	"http1.go put":                   "since when a connection is idle",
	"http1.go sweep":                 "how long a connection was idle",
	"gate.go Observe":                "how long ago an endpoint throttled",
	"gate.go ObserveClosed":          "how long ago an endpoint throttled",
	"gate.go ObserveThrottled":       "how long ago an endpoint throttled",
	"gate.go Spacing":                "when the next request to an endpoint may begin",
	"gate.go Full":                   "how long ago an endpoint responded",
	"backpressure.go Fetched":        "how long ago jobs were fetched",
	"backpressure.go Lag":            "how long ago jobs were fetched",
	"backpressure.go Next":           "how long publishes wait",
	"batcher.go Run":                 "when the last group ended",
	"gather.go gather":               "how long a group has grown",
	"closed.go Close":                "how long an endpoint remains closed",
	"closed.go EndTrial":             "how long an endpoint remains closed",
	"closed.go State":                "how long an endpoint remains closed",
	"closed.go Store":                "how long an endpoint remains closed",
	"closed.go keep":                 "how long an endpoint remains closed",
	"closed.go set":                  "how long an endpoint remains closed",
	"closed.go try":                  "how long an endpoint remains closed",
	"spacing.go Space":               "when the next late request of an endpoint may be sent",
	"traffic.go SampleTraffic":       "whether an endpoint was closed since",
	"limited.go RefillLimited":       "how far the next time of a limit is away",
	"limited.go next":                "how far the next time of a limit is away",
	"promote.go fetchLimited":        "until when fetches were requested",
	"gate.go localCapacity":          "how long ago an endpoint responded",
	"load.go queueHold":              "the database's time, continued",
	"offer.go commit":                "the database's time, continued",
	"clock.go Now":                   "the database's time, continued",
	"cache.go Reload":                "the database's time, continued",
	"work.go Now":                    "the database's time, continued",
	"load.go readLoaded":             "the database's time, continued",
	"cut.go Cut":                     "how long a cut took",
	"cut.go readHeld":                "how long ago held deliveries were searched from the start",
	"cut.go open":                    "how long ago open deliveries were searched",
	"committer.go flush":             "how long a request has waited",
	"keys.go postpone":               "how long a request has waited",
	"publish.go Publish":             "how long a request has waited",
	"commit.go transact":             "how long a group took",
	"obstacles.go known":             "how long ago a publish met a hold",
	"obstacles.go note":              "how long ago a publish met a hold",
	"recorder.go flush":              "how long a flush took",
	"traffic.go Run":                 "how long a sample took",
	"meter.go NewMeter":              "the age of the process",
	"meter.go readTotals":            "the age of the process",
	"meter.go Read":                  "the age of the last reading",
	"work.go Fresh":                  "the age of the holds",
	"commit.go begin":                "the age of the holds",
	"load.go query":                  "the age of the holds",
	"load.go readMembers":            "the age of the holds",
	"confirm.go run":                 "how long ago the catalog was queried",
	"handoff.go Query":               "how long ago jobs were queried",
	"handoff.go Fetched":             "how long ago a job was fetched",
	"deliveries.go CountDeliveries":  "how long the count takes",
	"pastevents.go CountEvents":      "how long the count takes",
	"promote.go Promote":             "how long ago River's own times were searched",
	"promote.go promoteScheduled":    "how long ago a large backlog was skipped",
	"repairpreview.go previewRepair": "how long a preview takes",
	"remember.go memory":             "how long ago a credential was read",
	"signin.go verify":               "how long ago wrong passwords were sent",
	// The only time that reaches the database: when River runs a job again whose attempt has no outcome. Promote corrects
	// what a wrong clock makes of it, by the database's own time.
	"workers.go NextRetry": "when River runs a job again",
}

// The process's clock may be an hour off and nothing changes: decisions about deliveries and stored times use the
// database's. A new reader of the process's clock must be reviewed and listed here.
func TestTheProcessesClockDecidesNothing(t *testing.T) {
	t.Parallel()
	var found []string
	for _, dir := range []string{
		"jobs", "policy", "internal/catalog", "internal/access", "internal/operator", "internal/postgres", "internal/query",
		"internal/event", "internal/endpointconf",
	} {
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

// readersOfTheClock lists the functions of a package's files, without tests, that call one of clocks.
func readersOfTheClock(t *testing.T, directory string) (readers []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", directory), func(path string, entry fs.DirEntry, err error) error {
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
