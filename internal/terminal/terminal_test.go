package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &ProgressLine{out: &out}
	p.End()
	require.Empty(t, out.String(), "a line that was not shown is not cleared")
	p.Show(func() string { return Bar(1, 2) + "1" })
	p.Show(func() string { t.Error("must not be called"); return "" })
	require.Equal(t, clearLine+"[============            ] 1", out.String(), "the second change comes too early")
	p.shown = time.Now().Add(-time.Minute)
	p.Show(func() string { return "3" })
	p.End()
	require.True(t, strings.HasSuffix(out.String(), clearLine+"3"+clearLine), out.String())
	require.Empty(t, Bar(1, 0))
	require.Equal(t, Bar(2, 2), Bar(5, 2))

	(&ProgressLine{}).Show(func() string { t.Error("must not be called without a terminal"); return "" })
	require.NoError(t, Await(&out, "nothing", func() error { return nil }))
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for want, given := range map[string]string{
		"0 events": Plural(0, "event"), "1 event": Plural(1, "event"), "2 deliveries": Plural(2, "delivery"),
		"1 delivery": Plural(1, "delivery"), "3 days": Plural(3, "day"),
		"2 addresses": Plural(2, "address"), "2 batches": Plural(int64(2), "batch"),
	} {
		require.Equal(t, want, given)
	}
}
