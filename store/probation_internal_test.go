package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailingForgetsWhatHasNoRow(t *testing.T) {
	t.Parallel()
	var f failing
	f.set("released elsewhere", true)
	f.set("still failing", true)
	heard := []*evidence{{Rest: Rest{key: "released elsewhere"}}, {Rest: Rest{key: "still failing"}}}
	f.forget(heard, map[string]*standing{"still failing": {}})
	require.False(t, f.has("released elsewhere"))
	require.True(t, f.has("still failing"))
}
