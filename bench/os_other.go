//go:build !linux

package bench

import "syscall"

// childAttributes: only Linux ends children of a parent that was killed.
func childAttributes() *syscall.SysProcAttr { return nil }
