package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func startRole(t *testing.T, role string, args ...string) *child {
	t.Helper()
	c, err := startChild(t.TempDir(), role, os.Args[0], []string{roleVariable + "=" + role}, args...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.stop() })
	return c
}

func TestChildThatBreaks(t *testing.T) {
	t.Parallel()
	c := startRole(t, "broken")
	_, err := c.ready(t.Context(), filepath.Join(t.TempDir(), "ready"), "api")
	require.ErrorContains(t, err, "broken ended: exit status 1")
	require.ErrorContains(t, err, "no database here", "the last lines of its log say why")
	require.ErrorContains(t, c.wait(t.Context()), "no database here")
	require.NoError(t, c.stop(), "it has ended already")
}

func TestChildThatIsNotReady(t *testing.T) {
	t.Parallel()
	c := startRole(t, "silent")
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, os.WriteFile(ready, []byte(`{"api":`), 0o600), "half written, or not by us")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.ready(ctx, ready, "api")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "silent is not ready")
	require.ErrorIs(t, c.wait(ctx), context.Canceled)
	select {
	case <-c.done:
	default:
		require.Fail(t, "wait stops the child when its context ends")
	}
}

func TestChildThatDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := startChild(t.TempDir(), "service", filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = startChild(filepath.Join(t.TempDir(), "none"), "service", os.Args[0], nil)
	require.ErrorIs(t, err, os.ErrNotExist, "no folder for its log")
}

func TestGuardTellsWhichProcessDied(t *testing.T) {
	t.Parallel()
	service, _ := startSinkChild(t, "sink")
	sink, _ := startSinkChild(t, "sink")
	r := rig{service: service, sink: sink}
	ctx, release := r.guard(t.Context())
	defer release()
	require.NoError(t, ctx.Err())
	require.NoError(t, r.service.cmd.Process.Kill())
	<-ctx.Done()
	require.ErrorContains(t, context.Cause(ctx), "sink ended: signal: killed")
	require.NoError(t, r.sink.stop())
}

func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	got := childEnvironment(
		[]string{"PATH=/bin", "POSTRIDER_LISTEN=:1", "DATABASE_URL=postgres://production", "PGHOST=production", "HOME=/root"})
	require.Equal(t, []string{"PATH=/bin", "HOME=/root"}, got)
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	require.Equal(t, "b\nc", lastLines([]byte("a\nb\nc\n"), 2))
	require.Equal(t, "a", lastLines([]byte("a"), 2))
	require.Empty(t, lastLines(nil, 2))
}
