package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// ticks are the clock ticks per second in which Linux reports CPU time to programs; 100 on every architecture Go runs
// on.
const ticks = 100

// Machine is what a measurement ran on. Everything ran on this one.
type Machine struct {
	OS    string `json:"os"`
	CPUs  int    `json:"cpus"`
	Model string `json:"model,omitempty"` // of the processor, where /proc says
	// MemoryBytes is 0 where /proc does not say.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
}

func thisMachine() Machine {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		kilobytes, _ := strconv.ParseInt(string(bytes.TrimSuffix(procField(raw, "MemTotal"), []byte(" kB"))), 10, 64)
		m.MemoryBytes = kilobytes << 10
	}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.Model = string(procField(raw, "model name"))
	}
	return m
}

// procField is the value in the first line "name : value".
func procField(raw []byte, name string) []byte {
	for line := range bytes.Lines(raw) {
		if key, value, ok := bytes.Cut(line, []byte{':'}); ok && string(bytes.TrimSpace(key)) == name {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

// procStat is what is used of /proc/{pid}/stat.
type procStat struct {
	parent         int
	seconds        float64 // of CPU, by the process itself
	reapedChildren float64 // seconds of CPU, by the children it has waited for
}

func readStat(pid int) (procStat, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, false
	}
	return parseStat(raw)
}

// parseStat counts fields from behind the program's name, which may hold spaces and parentheses: state is the first (3
// in proc(5)), the parent the second, user and system time the 12th and 13th, those of reaped children the 14th and
// 15th.
func parseStat(raw []byte) (procStat, bool) {
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 15 {
		return procStat{}, false
	}
	number := func(field int) float64 {
		n, _ := strconv.ParseFloat(string(fields[field-1]), 64)
		return n
	}
	return procStat{
		parent: int(number(2)), seconds: (number(12) + number(13)) / ticks, reapedChildren: (number(14) + number(15)) / ticks,
	}, true
}

// cpuSeconds is the CPU time of a process so far, false where /proc does not say.
func cpuSeconds(pid int) (float64, bool) {
	stat, ok := readStat(pid)
	return stat.seconds, ok
}

// treeSeconds is the CPU time of a process and all its children, living and reaped: of a postmaster and its sessions.
func treeSeconds(pid int) (float64, bool) {
	root, ok := readStat(pid)
	total := root.seconds + root.reapedChildren
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		each, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if stat, found := readStat(each); found && stat.parent == pid {
			total += stat.seconds
		}
	}
	return total, ok
}

// peakMB is the most memory that a process has had since forgetPeak (resident, in MiB); 0 where /proc does not say.
func peakMB(pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	kilobytes, _ := strconv.ParseFloat(string(bytes.TrimSuffix(procField(raw, "VmHWM"), []byte(" kB"))), 64)
	return round(kilobytes/1024, 1)
}

// forgetPeak begins the measure of peakMB anew, where the system can: what a phase takes is not what was before it.
func forgetPeak(pid int) { _ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }

// machineSeconds are the seconds that all the machine's CPUs together were busy, and idle, since it started. What the
// hypervisor took away (steal) counts as busy: it was not to be had.
func machineSeconds() (busy, idle float64, ok bool) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	return parseMachine(raw)
}

// parseMachine reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal, then guests'
// times, which user and nice contain already.
func parseMachine(raw []byte) (busy, idle float64, ok bool) {
	line, _, _ := bytes.Cut(raw, []byte{'\n'})
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseFloat(string(field), 64)
		if err != nil {
			return 0, 0, false
		}
		if i == 3 || i == 4 {
			idle += n / ticks
		} else {
			busy += n / ticks
		}
	}
	return busy, idle, true
}
