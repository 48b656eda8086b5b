package terminal

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPrintNamed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	at := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	PrintNamed(&out, "API key", "-", "expires", at, "role", "admin")
	require.Equal(t, "API key\t-\nexpires\t2026-01-31 09:00:00Z\nrole\tadmin\n", out.String())
}
