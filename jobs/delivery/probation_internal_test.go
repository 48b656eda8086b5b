package delivery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/queue"
)

func TestFailingForgetsWhatHasNoRow(t *testing.T) {
	t.Parallel()
	var f failing
	f.set("released elsewhere", true)
	f.set("still failing", true)
	heard := []*evidence{{Rest: queue.Rest{Key: "released elsewhere"}}, {Rest: queue.Rest{Key: "still failing"}}}
	f.forget(heard, map[string]*standing{"still failing": {}})
	require.False(t, f.has("released elsewhere"))
	require.True(t, f.has("still failing"))
}
