package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurnedBeginsElsewhereAndLeavesNobodyOut(t *testing.T) {
	t.Parallel()
	require.Empty(t, turned([]int{}, 3))
	require.Equal(t, []int{1, 2, 3}, turned([]int{1, 2, 3}, 0))
	require.Equal(t, []int{3, 1, 2}, turned([]int{1, 2, 3}, 2))
	require.Equal(t, []int{2, 3, 1}, turned([]int{1, 2, 3}, 7))
}
