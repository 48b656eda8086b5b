//go:build unix && !linux

package pgdev

import "syscall"

// dieWithParent does nothing: only Linux has a signal for it. A guardian does its work.
func dieWithParent(*syscall.SysProcAttr) {}

const kernelGuards = false

// memoryRoot is empty: other systems mount no folder in memory by themselves.
func memoryRoot() string { return "" }

func runsPrograms(string) bool { return true }
