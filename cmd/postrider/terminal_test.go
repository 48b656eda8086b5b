package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &progressLine{out: &out}
	p.end()
	require.Empty(t, out.String(), "what showed nothing has nothing to take away")
	p.show(func() string { return bar(1, 2) + "1" })
	p.show(func() string { t.Error("this is not asked for"); return "" })
	require.Equal(t, clearLine+"[============            ] 1", out.String(), "more often nobody can read it")
	p.shown = time.Now().Add(-time.Minute)
	p.show(func() string { return "3" })
	p.end()
	require.True(t, strings.HasSuffix(out.String(), clearLine+"3"+clearLine), out.String())
	require.Empty(t, bar(1, 0))
	require.Equal(t, bar(2, 2), bar(5, 2))

	(&progressLine{}).show(func() string { t.Error("nobody looks"); return "" })
	require.NoError(t, waiting("nothing", func() error { return nil }))
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for want, given := range map[string]string{
		"0 events": plural(0, "event"), "1 event": plural(1, "event"), "2 deliveries": plural(2, "delivery"), "1 delivery": plural(1, "delivery"), "3 days": plural(3, "day"),
		"2 addresses": plural(2, "address"), "2 batches": plural(int64(2), "batch"),
	} {
		require.Equal(t, want, given)
	}
}
