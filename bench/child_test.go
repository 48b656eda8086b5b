package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func startRole(t *testing.T, role string) *child {
	t.Helper()
	c, err := startChild(t.TempDir(), role, os.Args[0], []string{roleVariable + "=" + role})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.stop() })
	return c
}

func TestChildThatBreaks(t *testing.T) {
	t.Parallel()
	c := startRole(t, "broken")
	_, err := c.awaitReady(t.Context(), "api")
	require.ErrorContains(t, err, "broken ended: exit status 1")
	require.ErrorContains(t, err, "no database here", "the end of its log")
	require.NoError(t, c.stop(), "it has ended already")
}

func TestChildThatIsNotReady(t *testing.T) {
	t.Parallel()
	c := startRole(t, "silent")
	require.NoError(t, os.WriteFile(c.ready, []byte(`{"api":`), 0o600), "half written")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.awaitReady(ctx, "api")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "silent is not ready")
	_ = c.stop()
	select {
	case <-c.done:
	default:
		require.Fail(t, "the child has not ended")
	}
}

func TestChildThatDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := startChild(t.TempDir(), "service", filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = startChild(filepath.Join(t.TempDir(), "none"), "service", os.Args[0], nil)
	require.ErrorIs(t, err, os.ErrNotExist, "no folder for its log")
}

func TestGuardNamesTheProcessThatEnded(t *testing.T) {
	t.Parallel()
	s := system{service: startRole(t, "silent"), sink: startRole(t, "silent")}
	err := s.guarded(t.Context(), func(ctx context.Context) error {
		require.NoError(t, ctx.Err())
		require.NoError(t, s.service.cmd.Process.Kill())
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorContains(t, err, "silent ended: signal: killed")
}

func TestChildEnvironment(t *testing.T) {
	t.Setenv("POSTRIDER_LISTEN", ":1")
	t.Setenv("DATABASE_URL", "postgres://production")
	t.Setenv("PGHOST", "production")
	c := startRole(t, "silent")
	require.Contains(t, c.cmd.Env, roleVariable+"=silent")
	require.Contains(t, c.cmd.Env, "PATH="+os.Getenv("PATH"))
	for _, name := range []string{"POSTRIDER_LISTEN=:1", "DATABASE_URL=postgres://production", "PGHOST=production"} {
		require.NotContains(t, c.cmd.Env, name)
	}
}
