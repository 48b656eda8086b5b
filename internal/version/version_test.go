package version

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumberOfABuild(t *testing.T) {
	t.Parallel()
	require.Equal(t, "dev", numberOf("", ""))
	require.Equal(t, "dev-0123456789ab", numberOf("", "0123456789abcdef"))
	require.Equal(t, "1.2.3", numberOf("1.2.3", "0123456789abcdef"))
}

func TestBuildInOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postrider 1.2.3 go1.26.1 linux/amd64, revision 0123 of 2026-11-22T09:00:00Z, with changes",
		Build{
			Version: "1.2.3", Go: "go1.26.1", Platform: "linux/amd64", Revision: "0123",
			Time: "2026-11-22T09:00:00Z", Modified: true,
		}.String())
}
