//go:build !linux

package main

import "syscall"

// childAttributes: only Linux ends children of a parent that was killed.
func childAttributes() *syscall.SysProcAttr { return nil }
