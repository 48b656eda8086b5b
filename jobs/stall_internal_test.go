package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CheckProgressEvery sets the interval of the check, for tests.
func (o *Options) CheckProgressEvery(interval time.Duration) { o.stallInterval = interval }

func TestProgress(t *testing.T) {
	t.Parallel()
	var p progress
	var w stallWatch
	require.False(t, w.moves(&p), "nothing happens")
	p.begin()
	require.True(t, w.moves(&p), "an attempt was begun")
	require.True(t, w.moves(&p), "it is in flight")
	p.end()
	require.False(t, w.moves(&p))
	p.begin()
	p.end()
	require.True(t, w.moves(&p), "an attempt was begun and has ended since the last check")
	require.False(t, w.moves(&p))
}
