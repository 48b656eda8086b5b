package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRotatedKeepsAllElements(t *testing.T) {
	t.Parallel()
	require.Empty(t, rotated([]int{}, 3))
	require.Equal(t, []int{1, 2, 3}, rotated([]int{1, 2, 3}, 0))
	require.Equal(t, []int{3, 1, 2}, rotated([]int{1, 2, 3}, 2))
	require.Equal(t, []int{2, 3, 1}, rotated([]int{1, 2, 3}, 7))
}
