package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"

	"github.com/prometheus/procfs"
)

// ticks are the clock ticks per second in which Linux reports CPU time; 100 on every architecture that Go supports.
const ticks = 100

// Machine describes the machine of a measurement.
type Machine struct {
	OS    string `json:"os"`
	CPUs  int    `json:"cpus"`
	Model string `json:"model,omitempty"` // of the processor, from /proc
	// MemoryBytes is 0 without /proc.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func thisMachine() Machine {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
	raw, _ := os.ReadFile("/proc/cpuinfo")
	if found := modelName.FindSubmatch(raw); found != nil {
		m.Model = string(found[1])
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if info, err := fs.Meminfo(); err == nil && info.MemTotalBytes != nil {
			m.MemoryBytes = int64(*info.MemTotalBytes)
		}
	}
	return m
}

// String formats the machine for people.
func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %.0f GB, %s; service, database, publishers and sink share it", m.CPUs, m.Model,
		float64(m.MemoryBytes)/(1<<30), m.OS)
}

// peakMB returns the peak resident memory of a process since resetPeak, in MiB; 0 without /proc.
func peakMB(pid int) float64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, _ := p.NewStatus()
	return round(float64(status.VmHWM)/(1<<20), 1)
}

func resetPeak(pid int) { _ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }

// machineBusy is the name of the CPU time of all processes.
const machineBusy = "busy"

// cpuSeconds returns the CPU time of each process and of the machine. That of postgres, unless its process is 0,
// includes its sessions. Time that the hypervisor took (steal) counts as busy.
func cpuSeconds(postgres int, processes map[int]string) map[string]float64 {
	seconds := map[string]float64{}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return seconds
	}
	all, _ := fs.AllProcs()
	for _, p := range all {
		stat, err := p.Stat()
		name := processes[p.PID]
		switch {
		case err != nil: // the process has ended
		case name != "":
			seconds[name] = stat.CPUTime()
		case postgres != 0 && p.PID == postgres:
			seconds["postgres"] += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/ticks
		case postgres != 0 && stat.PPID == postgres:
			seconds["postgres"] += stat.CPUTime()
		}
	}
	if stat, err := fs.Stat(); err == nil {
		t := stat.CPUTotal
		seconds[machineBusy] = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
		seconds["idle"] = t.Idle + t.Iowait
	}
	return seconds
}

// used returns the difference of two results of cpuSeconds, with the time of other processes as "others".
func used(before, after map[string]float64) map[string]float64 {
	difference, ours := map[string]float64{}, 0.0
	for name, seconds := range after {
		difference[name] = round(seconds-before[name], 2)
		if name != machineBusy && name != "idle" {
			ours += seconds - before[name]
		}
	}
	if busy, ok := difference[machineBusy]; ok {
		difference["others"] = round(max(busy-ours, 0), 2)
		delete(difference, machineBusy)
	}
	return difference
}
