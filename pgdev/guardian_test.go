//go:build unix

package pgdev

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuardian(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		part func(*guardian)
		want syscall.Signal
	}{
		"the end of this process ends the child": {
			func(g *guardian) { _ = g.pipe.Close(); _ = g.cmd.Wait() }, syscall.SIGINT,
		},
		"a released guardian leaves the child": {(*guardian).release, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), "sleep", "1000")
			require.NoError(t, child.Start())
			g, err := guard(child.Process.Pid)
			require.NoError(t, err)
			tc.part(g)
			_ = child.Process.Signal(syscall.SIGKILL) // the guardian is gone: its signal, if any, came first
			_ = child.Wait()
			require.Equal(t, tc.want, child.ProcessState.Sys().(syscall.WaitStatus).Signal())
		})
	}
}
