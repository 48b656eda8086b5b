//go:build !linux && !darwin

package pgdev

import "syscall"

func ownGroup() *syscall.SysProcAttr         { return nil }
func setUser(*syscall.SysProcAttr, int, int) {}
func memory() (space, programs bool)         { return false, false }
