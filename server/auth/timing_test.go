package auth

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Rejecting a key takes as long whether its first or its last byte is wrong: only crypto/subtle compares digests, and
// always with both keys of a topic.
func TestKeysAreComparedAsDigests(t *testing.T) {
	t.Parallel()
	const key = "cG9zdHJpZGVyLWEta2V5LWZvci1hLXRlc3Qtb2YtdGltZSE="
	sum, other := DigestOf(key), DigestOf("another")
	topic := &catalog.Topic{Key1Hash: sum[:], Key2Hash: other[:]}
	for shown, opens := range map[string]bool{
		key: true, "another": true, "X" + key[1:]: false, key[:len(key)-1] + "X": false,
	} {
		c := Credential{Digest: DigestOf(shown)}
		require.Equal(t, opens, c.Opens(topic), shown)
	}

	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	compared := 0
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(entry.Name())
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, call := range []string{"bytes.Equal(", "bytes.Compare(", "slices.Equal("} {
			require.NotContains(t, string(text), call, entry.Name())
		}
		compared += strings.Count(string(text), "subtle.ConstantTimeCompare(d[:]")
		ast.Inspect(file, func(n ast.Node) bool {
			if e, is := n.(*ast.BinaryExpr); is {
				source := string(text[e.Pos()-file.FileStart : e.End()-file.FileStart])
				if e.Op == token.LOR || e.Op == token.LAND { // the second comparison must not depend on the first one
					require.LessOrEqual(t, strings.Count(source, ".equals("), 1, source)
				}
				if e.Op == token.EQL || e.Op == token.NEQ {
					require.True(t, !strings.Contains(source, "Digest") || strings.Contains(source, ".equals("), source)
				}
			}
			return true
		})
	}
	require.Equal(t, 1, compared)
}
