package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A problem is shown, acknowledged for a time with a note, and resolved; lists hide it until it fails again.
func TestProblemsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.Topic(t, "orders")
	h.Fail(t, h.Subscribe(t, "orders", "billing", nil), 1)
	h.ObserveProblems(t, 0)
	id := h.Text(t, "SELECT problem_id::text FROM postrider.problems")
	require.Regexp(t, id+` +failing +orders +billing +503 +Busy `, h.line(0, "problem list --state failing"))

	shown := h.line(0, "problem show "+id)
	require.Regexp(t, `(?m)^state +failing$`, shown)
	require.Regexp(t, `(?m)^error +it broke$`, shown)
	done := h.run(0, "problem", "acknowledge", id, "--for", "24h", "--note", "moving it").stdout
	require.Regexp(t, "^Problem "+id+" is acknowledged until 20", done)
	require.Equal(t, 1, h.Rows(t, "problems", "state = 'acknowledged' AND note = 'moving it' "+
		"AND acknowledged_until BETWEEN now() + interval '1439 minutes' AND now() + interval '1440 minutes'"))
	require.NotContains(t, h.line(0, "problem list --state failing"), id)
	require.Contains(t, h.line(0, "problem list"), id)
	require.Equal(t, "Problem "+id+" is resolved.\n", h.run(0, "problem", "resolve", id, "--note", "moved").stdout)
	require.Equal(t, 1, h.Rows(t, "problems", "state = 'resolved' AND note = 'moved'"))
	require.NotContains(t, h.line(0, "problem list"), id)
	require.Contains(t, h.line(0, "problem list --state all"), id)

	h.line(2, "problem show 4711")
	h.line(2, "problem acknowledge "+id+" --for 721h")
	h.line(2, "problem list --state ended")
	h.line(1, "problem resolve 00000000-0000-0000-0000-000000000000")
}
