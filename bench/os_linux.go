package bench

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches this process alone, which then
// ends its children in order; and has the kernel kill the child when this process ends in whatever way, SIGKILL
// included.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
