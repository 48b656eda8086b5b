package event

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsTopic(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]bool{
		"orders": true, "/topics/orders": true,
		"Orders": false, "/topics/Orders": false, "/Topics/orders": false, "topics/orders": false,
		"/topics/": false, "order": false, "orders2": false, "/topics//topics/orders": false,
	} {
		require.Equal(t, want, isTopic([]byte(topic), "orders"), topic)
	}
}

func TestLimitsWithDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, Limits{MaxEvents: 5000, MaxEventBytes: 1048576, MaxDepth: 256}, Limits{}.withDefaults(false))
	require.Equal(t, DefaultLimits(), Limits{MaxEvents: -1, MaxEventBytes: -1, MaxDepth: -1}.withDefaults(false))
	own := Limits{MaxEvents: 1, MaxEventBytes: 2, MaxDepth: 3}
	require.Equal(t, own, own.withDefaults(false))
}

func TestShorten(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("a", 64), shorten(strings.Repeat("a", 64)))
	require.Equal(t, strings.Repeat("a", 64)+"...", shorten(strings.Repeat("a", 65)))
	require.Equal(t, strings.Repeat("a", 63)+"...", shorten(strings.Repeat("a", 63)+"é"), "a character is not cut in two")
}
