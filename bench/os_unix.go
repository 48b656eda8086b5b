//go:build unix && !linux

package bench

import "syscall"

// childAttributes keeps Ctrl-C from the child. Only Linux ends children of a parent that was killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
