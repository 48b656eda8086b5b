package jsonscan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPosition(t *testing.T) {
	t.Parallel()
	text := []byte("{\n  \"ä\": x\n}")
	for _, row := range []struct{ offset, line, column int }{
		{-1, 1, 1}, {0, 1, 1}, {1, 1, 2}, {2, 2, 1}, {10, 2, 8}, {len(text), 3, 2}, {99, 3, 2},
	} {
		line, column := Position(text, row.offset)
		require.Equal(t, [2]int{row.line, row.column}, [2]int{line, column}, "byte %d", row.offset)
	}
}
