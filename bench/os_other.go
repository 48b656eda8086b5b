//go:build !unix

package bench

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
