package pgdev

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	tests := settings(Options{}, 20001)
	require.Equal(t, "20001", tests["port"])
	require.Equal(t, "127.0.0.1", tests["listen_addresses"])
	require.Equal(t, "off", tests["fsync"])
	durable := settings(Options{Durable: true, Settings: map[string]string{"max_connections": "50"}}, 20001)
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		require.NotContains(t, durable, name, "PostgreSQL's own default, on, holds")
	}
	require.Equal(t, "50", durable["max_connections"], "the caller's value wins")
}

func TestRender(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lines map[string]string
		want  string // "" = refused
	}{
		"sorted by name":             {map[string]string{"b": "2", "a": "1"}, "a = '1'\nb = '2'\n"},
		"a quote stays in its value": {map[string]string{"a": `x' y`}, "a = 'x'' y'\n"},
		"a backslash is no escape":   {map[string]string{"a": `x\n`}, "a = 'x\\\\n'\n"},
		"an extension's setting": {
			map[string]string{"auto_explain.log_min_duration": "0"}, "auto_explain.log_min_duration = '0'\n",
		},
		"a second line in a value": {map[string]string{"a": "1\nfsync = off"}, ""},
		"a second line in a name":  {map[string]string{"a\nfsync": "1"}, ""},
		"an empty name":            {map[string]string{"": "1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := render(tc.lines)
			require.Equal(t, tc.want == "", err != nil)
			require.Contains(t, got, tc.want)
		})
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, diagnose(`LOG:  could not bind IPv4 address "127.0.0.1": Address already in use`), errPortTaken)
	require.ErrorIs(t, diagnose("FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use"), errOldSessions)
	require.NoError(t, diagnose("FATAL:  could not access file: No such file or directory"))
}

func TestTail(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb", tail("a\nb\n"))
	require.Equal(t, "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13", tail("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n"))
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := environment(
		[]string{"PATH=/bin", "PGDATA=/users/own", "PGPORT=5432", "LANG=de_DE", "LC_MESSAGES=de_DE", "HOME=/root"})
	require.Equal(t, []string{"LC_ALL=C", "PATH=/bin", "HOME=/root"}, got)
}

func TestDatabaseName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "t7_testpublish_an_event__of_1_mb", databaseName("TestPublish/an_event,_of_1_MB", 7))
	require.LessOrEqual(t, len(databaseName("Test"+string(make([]byte, 500)), 1<<40)), 63)
}

func TestLocaleArgs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"--locale=C"}, localeArgs(version{15, 18}))
	require.Contains(t, localeArgs(version{17, 0}), "--builtin-locale=C.UTF-8")
}
