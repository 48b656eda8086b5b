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
	heard := []*healthSignal{
		{Probation: queue.Probation{Key: "released elsewhere"}}, {Probation: queue.Probation{Key: "still failing"}},
	}
	f.forget(heard, map[string]*probation{"still failing": {}})
	require.False(t, f.has("released elsewhere"))
	require.True(t, f.has("still failing"))
}
