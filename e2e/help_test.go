package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// `help VERB` prints what `VERB --help` prints.
func TestHelp(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, "topic", "create", "--help")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "Usage: postrider topic create")
	require.Equal(t, r.stdout, postrider(t, nil, "help", "topic", "create").stdout)
	require.Equal(t, postrider(t, nil, "--help").stdout, postrider(t, nil, "help").stdout)
}

func TestWrongUsageOfAProcess(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{"unknown flag --loud": {"version", "--loud"}, "<statement>": {"sql"}} {
		r := postrider(t, nil, args...)
		require.Equal(t, 2, r.code)
		require.Contains(t, r.stderr, says)
		require.NotContains(t, r.stderr, "goroutine")
		require.Empty(t, r.stdout)
	}
}

// `version` and `--version` print the same line.
func TestVersion(t *testing.T) {
	t.Parallel()
	flag, verb := postrider(t, nil, "--version"), postrider(t, nil, "version")
	require.Zero(t, flag.code, flag.stderr)
	require.Regexp(t, `^postrider \S+ go1\.\S+ \w+/\w+\n$`, flag.stdout)
	require.Equal(t, flag.stdout, verb.stdout)
	require.Contains(t, postrider(t, nil, "version", "-o", "json").stdout, `"platform":"`)
}
