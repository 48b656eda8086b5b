package e2e

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// childAttributes makes the kernel end a child when this test process ends, and keeps Ctrl-C from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// unprivilegedAttributes are childAttributes for a program that does not run as root; dir becomes its user's.
func unprivilegedAttributes(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	attributes := childAttributes()
	if os.Geteuid() != 0 {
		return attributes
	}
	other, err := user.Lookup("nobody") // a user without rights
	require.NoError(t, err)
	uid, err := strconv.Atoi(other.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(other.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, uid, gid))
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes
}
