package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// stopTimeout is above the 20 s in which the service completes running attempts.
const stopTimeout = 30 * time.Second

// child is a process of the measured program, with a log file.
type child struct {
	name   string
	api    string // its address, once it is ready
	cmd    *exec.Cmd
	log    string
	ending atomic.Bool   // it was stopped or killed
	done   chan struct{} // closed when it has ended
	err    error         // how it ended, once done is closed
}

// command is the program with these arguments, and with the environment of this process without variables of postrider
// and PostgreSQL, and with those of the system.
func (s *system) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program.binary, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "POSTRIDER_") || strings.HasPrefix(pair, "DATABASE_URL=") ||
			strings.HasPrefix(pair, "PG")
	}), s.environment...)
	cmd.SysProcAttr = childAttributes()
	return cmd
}

// startNode starts a node, and returns its address when it is ready. If the node ends by itself, the run fails.
func (s *system) startNode(name string) (address string) {
	ready := filepath.Join(s.dir, name+".json")
	c := &child{name: name, log: filepath.Join(s.dir, name+".log"), done: make(chan struct{}), cmd: s.command("serve",
		"--allow-cidr", "127.0.0.0/8", "--listen", "127.0.0.1:0", "--ready-file", ready)}
	log, err := os.Create(c.log)
	if err != nil {
		s.fail(fmt.Errorf("start %s: %w", name, err))
		return ""
	}
	defer log.Close()
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		s.fail(fmt.Errorf("start %s: %w", name, err))
		return ""
	}
	s.nodes = append(s.nodes, c)
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
		if !c.ending.Swap(true) {
			s.fail(c.explain(fmt.Errorf("%s ended: %w", name, cmp.Or(c.err, errors.New("exit status 0")))))
		}
	}()
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	for pause(ctx, 20*time.Millisecond) {
		var content struct{ API string }
		if raw, err := os.ReadFile(ready); err == nil && json.Unmarshal(raw, &content) == nil && content.API != "" {
			c.api = content.API
			return c.api
		}
	}
	s.fail(c.explain(fmt.Errorf("%s is not ready: %w", name, ctx.Err())))
	return ""
}

// nodesFlag is a flag of scenarios that measure several nodes.
type nodesFlag struct {
	Nodes int `help:"Nodes, that is serve processes on one database. Publishers use them in turn." default:"${nodes=1}" range:"1.."`
}

// startNodes starts nodes until there are n.
func (s *system) startNodes(n int) {
	for len(s.nodes) < n && s.ctx.Err() == nil {
		s.startNode(fmt.Sprintf("node-%d", len(s.nodes)+1))
	}
}

// explain adds the last lines of the child's log to an error.
func (c *child) explain(err error) error {
	raw, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return fmt.Errorf("%w; the end of its log:\n%s", err, strings.Join(lines[max(len(lines)-15, 0):], "\n"))
}

// stop sends a signal, kills a child that takes too long, and returns when it has ended. The error is of a child that
// did not end in order after SIGTERM.
func (c *child) stop(signal os.Signal) error {
	if c.ending.Swap(true) {
		return nil
	}
	_ = c.cmd.Process.Signal(signal)
	timer := time.AfterFunc(stopTimeout, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	if <-c.done; c.err != nil && signal == syscall.SIGTERM {
		return c.explain(fmt.Errorf("stop %s: %w", c.name, c.err))
	}
	return nil
}

// thisMachine describes the machine of a measurement. Model and memory are from /proc.
func thisMachine() map[string]any {
	m := map[string]any{"os": runtime.GOOS + "/" + runtime.GOARCH, "cpus": runtime.NumCPU()}
	fs, _ := procfs.NewDefaultFS()
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m["model"] = cpus[0].ModelName
	}
	if info, err := fs.Meminfo(); err == nil && info.MemTotalBytes != nil {
		m["memoryBytes"] = *info.MemTotalBytes
	}
	return m
}

// peakMB returns the largest peak memory of a node since resetPeaks, in MiB.
func (s *system) peakMB() float64 {
	largest := 0.0
	for _, node := range s.nodes {
		largest = max(largest, peakMB(node.cmd.Process.Pid))
	}
	return largest
}

func (s *system) resetPeaks() {
	for _, node := range s.nodes {
		resetPeak(node.cmd.Process.Pid)
	}
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

// cpuSeconds returns the CPU time of the processes by name, and of the machine. That of postgres, unless its process is
// 0, includes its sessions. Time that the hypervisor took (steal) counts as busy.
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
			seconds[name] += stat.CPUTime()
		case postgres != 0 && p.PID == postgres:
			seconds["postgres"] += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/100 // ticks per second
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
	difference, others := map[string]float64{}, after[machineBusy]-before[machineBusy]
	for name, seconds := range after {
		if difference[name] = round(seconds-before[name], 2); name != machineBusy && name != "idle" {
			others -= seconds - before[name]
		}
	}
	if _, ok := difference[machineBusy]; ok {
		difference["others"] = round(max(others, 0), 2)
		delete(difference, machineBusy)
	}
	return difference
}

// perUnit divides the CPU time of service and postgres.
func perUnit(cpu map[string]float64, units float64, digits int) map[string]float64 {
	each := map[string]float64{}
	for _, name := range []string{"service", "postgres"} {
		if seconds, known := cpu[name]; known {
			each[name] = round(seconds/units, digits)
		}
	}
	return each
}
