package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each row of the security page names existing tests. Rows are cited by their numbers.
func TestMitigationsNameTheirTests(t *testing.T) {
	t.Parallel()
	tests := testsOf(t, filepath.Join("..", ".."))
	page := fromRoot(t, "docs/internals/security.md")
	rows := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || strings.Contains(line, "---") || strings.Contains(line, "| Test |") {
			continue
		}
		rows++
		require.Equal(t, strconv.Itoa(rows), strings.TrimSpace(cells[1]), line)
		named := namedTest.FindAllStringSubmatch(cells[5], -1)
		require.NotEmpty(t, named, line)
		for _, test := range named {
			require.True(t, tests[test[1]+"/"+test[2]], "there is no test %s/%s", test[1], test[2])
		}
	}
	require.Greater(t, rows, 25)
}
