package server_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConflictCodesAreDocumented: docs/reference/rest.md and the description in openapi.yaml have each code of a 409.
func TestConflictCodesAreDocumented(t *testing.T) {
	t.Parallel()
	code := readSpecification(t).Components.Schemas["ConflictCode"]
	require.NotEmpty(t, code.Enum)
	page, err := os.ReadFile("../docs/reference/rest.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "A 409 says by its code")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\nResponses under")
	codes := func(pattern, text string) (list []string) {
		for _, row := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			list = append(list, row[1])
		}
		return list
	}
	require.Equal(t, code.Enum, codes("(?m)^\\| `(\\w+)` \\|", table))
	require.Equal(t, code.Enum, codes("(?m)^- `(\\w+)`: ", code.Description))
}
