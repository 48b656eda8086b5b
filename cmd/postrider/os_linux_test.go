package main

import "syscall"

// childAttributes has the kernel end a child when this test process ends in whatever way, and keeps Ctrl-C from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
