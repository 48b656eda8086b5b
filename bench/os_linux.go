package main

import "syscall"

// childAttributes gives a child its own process group: Ctrl-C reaches only this process, which then ends its children.
// The kernel kills the child when this process ends, even by SIGKILL.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
