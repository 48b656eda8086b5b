package bench

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThisMachine(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	m := thisMachine()
	require.Positive(t, m.CPUs)
	require.Greater(t, m.MemoryBytes, int64(64<<20))
	require.Positive(t, peakMB(os.Getpid()))
	require.Zero(t, peakMB(1<<30), "no such process")
	alone := cpuSeconds(0, map[int]string{os.Getpid(): "load", 1 << 30: "none"})
	require.Contains(t, alone, "load")
	require.NotContains(t, alone, "none")
	require.NotContains(t, alone, "postgres")
	require.Greater(t, alone[machineBusy], alone["load"])
	tree := cpuSeconds(os.Getppid(), nil)
	require.GreaterOrEqual(t, tree["postgres"], alone["load"], "a process includes its children")
}

func TestUsed(t *testing.T) {
	t.Parallel()
	before := map[string]float64{"service": 1, "sink": 1, machineBusy: 100, "idle": 50}
	after := map[string]float64{"service": 4, "sink": 2, machineBusy: 106, "idle": 51}
	require.Equal(t, map[string]float64{"service": 3, "sink": 1, "others": 2, "idle": 1}, used(before, after))
	require.Equal(t, map[string]float64{"service": 3},
		used(map[string]float64{"service": 1}, map[string]float64{"service": 4}))
}
