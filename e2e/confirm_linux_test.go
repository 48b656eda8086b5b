package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminalOf runs the program at a terminal and types the confirmation.
func onTerminalOf(t *testing.T, env []string, reply string, args ...string) (code int, shown string) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	defer func() { _ = terminal.Close() }()
	require.NoError(t, unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	keyboard, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = keyboard.Close() }()
	_, err = terminal.WriteString(reply + "\n")
	require.NoError(t, err)
	var output strings.Builder
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, keyboard, &output, &output
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), output.String()
}

// A process at a terminal requests a confirmation; internal/cli has the questions of the other verbs.
func TestConfirmationAtATerminal(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/users/anna", `{"role":"viewer","password":"correct horse battery"}`)
	for _, row := range []struct {
		reply string
		code  int
		users int
	}{{"", 1, 1}, {"never", 1, 1}, {"y", 0, 0}} {
		code, shown := onTerminalOf(t, db.env(), row.reply, "user", "remove", "anna")
		require.Equal(t, row.code, code, shown)
		require.Contains(t, shown, "Remove user anna (viewer)? Name, role, password and personal keys are lost, "+
			"and 0 sessions will end. [y/N]")
		require.Equal(t, row.users, one[int](db, "SELECT count(*)::int FROM postrider_internal.users"))
	}
}
