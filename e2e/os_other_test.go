//go:build !linux

package e2e

import (
	"syscall"
	"testing"
)

func childAttributes() *syscall.SysProcAttr { return nil }

func unprivilegedAttributes(*testing.T, string) *syscall.SysProcAttr { return nil }
