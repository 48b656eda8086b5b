package bench

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	stat, ok := parseStat([]byte("4711 (a ) b) S 42 4711 4711 0 -1 4194560 100 200 0 0 150 50 300 100 20 0 1 0 12345"))
	require.True(t, ok)
	require.Equal(t, procStat{parent: 42, seconds: 2, reapedChildren: 4}, stat)
	_, ok = parseStat([]byte("4711 (short) S 42"))
	require.False(t, ok)
}

func TestProcField(t *testing.T) {
	t.Parallel()
	require.Equal(t, "16384 kB", string(procField([]byte("MemFree: 1 kB\nMemTotal:   16384 kB\n"), "MemTotal")))
	require.Equal(t, "AMD EPYC", string(procField([]byte("model name\t: AMD EPYC\n"), "model name")))
	require.Nil(t, procField(nil, "MemTotal"))
}

func TestThisMachine(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	m := thisMachine()
	require.Positive(t, m.CPUs)
	require.Greater(t, m.MemoryBytes, int64(64<<20))
	_, ok := cpuSeconds(os.Getpid())
	require.True(t, ok)
	total, ok := treeSeconds(os.Getppid())
	require.True(t, ok)
	own, _ := cpuSeconds(os.Getpid())
	require.LessOrEqual(t, own-0.02, total+own, "a tree has at least its root")
	_, ok = cpuSeconds(1 << 30)
	require.False(t, ok, "no such process")
}

func TestParseMachine(t *testing.T) {
	t.Parallel()
	busy, idle, ok := parseMachine([]byte("cpu  100 200 300 4000 500 10 20 70 9 9\ncpu0 1 1 1\n"))
	require.True(t, ok)
	require.InDelta(t, 7, busy, 1e-9, "user, nice, system, irq, softirq and steal")
	require.InDelta(t, 45, idle, 1e-9, "waiting for a disk is idle")
	for _, raw := range []string{"", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 x 4 5 6 7 8\n"} {
		_, _, ok = parseMachine([]byte(raw))
		require.False(t, ok, raw)
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	before := map[string]float64{"service": 1, "sink": 1, machineBusy: 100, "idle": 50}
	after := map[string]float64{"service": 4, "sink": 2, machineBusy: 106, "idle": 51}
	require.Equal(t, map[string]float64{"service": 3, "sink": 1, "others": 2, "idle": 1}, used(before, after))
	require.Equal(t, map[string]float64{"service": 3},
		used(map[string]float64{"service": 1}, map[string]float64{"service": 4}))
}
