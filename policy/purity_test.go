package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Decisions that read a clock or a file are not repeatable. The linter allows the whole standard library, so this test
// lists the parts that are forbidden here.
func TestPackagesArePure(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{
		".", "../internal/endpointconf", "../internal/event", "../internal/filter", "../internal/jsonscan",
	} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, folder)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			require.Empty(t, impurities(t, file), name)
		}
	}
	const source = `package p
import ("os"; "net/http"; "math/rand/v2"; "github.com/jackc/pgx/v5"; "net/netip"; "time")
var _ = time.Now()`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"os", "net/http", "math/rand/v2", "github.com/jackc/pgx/v5", "time.Now"},
		impurities(t, file))
}

var clock = []string{"Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "NewTicker"}

func impurities(t *testing.T, file *ast.File) []string {
	t.Helper()
	var found []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if impure(path) {
			found = append(found, path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clock, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				found = append(found, "time."+s.Sel.Name)
			}
		}
		return true
	})
	return found
}

func impure(path string) bool {
	switch path {
	case "os", "net", "net/http", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand":
		return true
	}
	return strings.Contains(strings.Split(path, "/")[0], ".") ||
		strings.HasPrefix(path, "postrider/") && path != "postrider/internal/filter" && path != "postrider/internal/jsonscan"
}
