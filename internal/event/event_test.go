package event

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPurity checks what the package comment promises: no I/O, no clock, no random numbers.
func TestPurity(t *testing.T) {
	t.Parallel()
	forbidden := []string{"os", "net/http", "database/sql", "log/slog", "math/rand", "math/rand/v2"}
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	checked := 0
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
		file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			require.NotContains(t, forbidden, path, "%s imports it", name)
			require.NotContains(t, path, ".", "%s: standard library only", name)
			if path != "postrider/internal/jsonscan" {
				require.False(t, strings.HasPrefix(path, "postrider"), "%s imports %s: nothing of ours", name, path)
			}
		}
		require.False(t, readsClock(file), "%s reads the clock", name)
	}
	require.GreaterOrEqual(t, checked, 5)
}

func readsClock(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				switch s.Sel.Name {
				case "Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "NewTicker":
					found = true
				}
			}
		}
		return true
	})
	return found
}

func TestPurityFindsTheClock(t *testing.T) {
	t.Parallel()
	file, err := goparser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport \"time\"\nvar t = time.Now()\n", 0)
	require.NoError(t, err)
	require.True(t, readsClock(file))
}

func TestTopicPath(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/topics/orders", TopicPath("orders"))
}

func TestIsTopic(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]bool{
		"orders": true, "/topics/orders": true,
		"Orders": false, "/topics/Orders": false, "/Topics/orders": false, "topics/orders": false,
		"/topics/": false, "order": false, "orders2": false, "/topics//topics/orders": false,
	} {
		require.Equal(t, want, isTopic([]byte(topic), "orders"), topic)
	}
}

func TestLimitsWithDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, Limits{MaxEvents: 5000, MaxEventBytes: 1048576, MaxDepth: 256}, Limits{}.withDefaults())
	require.Equal(t, DefaultLimits(), Limits{MaxEvents: -1, MaxEventBytes: -1, MaxDepth: -1}.withDefaults())
	own := Limits{MaxEvents: 1, MaxEventBytes: 2, MaxDepth: 3}
	require.Equal(t, own, own.withDefaults())
}

func TestShorten(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("a", 64), shorten(strings.Repeat("a", 64)))
	require.Equal(t, strings.Repeat("a", 64)+"...", shorten(strings.Repeat("a", 65)))
	require.Equal(t, strings.Repeat("a", 63)+"...", shorten(strings.Repeat("a", 63)+"é"), "a character is not cut in two")
}
