package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnchors(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		map[string]bool{"deadletters---deliveries-what-sql-takes": true, "javascript-azureeventgrid": true, "a-b": true},
		anchors("## deadletters --deliveries: what SQL takes\n### JavaScript: `@azure/eventgrid`\n```\n# no\n```\n# "+
			"[A](b.md) b\n"))
}
