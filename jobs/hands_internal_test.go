package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

func handedJobs(ids ...int64) (handed []store.Handed) {
	for _, id := range ids {
		handed = append(handed, store.Handed{Job: store.Job{ID: id}, Work: &store.Work{}})
	}
	return handed
}

func TestHandsTakeHalfOfWhatIsFree(t *testing.T) {
	t.Parallel()
	busy := 20
	h := newHands(100, func() int { return busy })
	require.Equal(t, 40, h.take(1000))
	require.Equal(t, 20, h.take(1000), "what was promised is not free")
	require.Equal(t, 5, h.take(5))
	h.give(40, handedJobs(1, 2))
	h.give(20, nil)
	h.give(5, nil)
	require.Equal(t, 39, h.take(1000), "two wait")
	h.give(39, nil)
	busy = 200
	require.Zero(t, h.take(10))
	busy = 0
	h.fetched(7, 7)
	require.Zero(t, h.take(10), "jobs in the database come first")
	h.fetched(6, 7)
	require.Equal(t, 10, h.take(10))
}

func TestHandsSayWhenTheDatabaseIsAsked(t *testing.T) {
	t.Parallel()
	h := newHands(100, func() int { return 0 })
	_, ask := h.next(10)
	require.True(t, ask, "nothing was handed over: somebody else's jobs may be there")
	h.give(h.take(2), handedJobs(1, 2))
	jobs, ask := h.next(10)
	require.Len(t, jobs, 2)
	require.False(t, ask, "the publish woke the fetcher for these alone")
	h.give(h.take(1), handedJobs(3))
	h.stir()
	jobs, ask = h.next(10)
	require.Len(t, jobs, 1)
	require.True(t, ask, "a retry, another node's publish")
	h.give(h.take(3), handedJobs(4, 5, 6))
	h.stir()
	jobs, ask = h.next(2)
	require.Len(t, jobs, 2)
	require.False(t, ask, "no worker is left")
	jobs, ask = h.next(2)
	require.Len(t, jobs, 1)
	require.True(t, ask)
	require.Equal(t, []int64{}, append([]int64{}, h.close()...))
}

// An idle node asks less often, but not before anything that is stored ahead of its time would have come.
func TestHandsAreCalmWhenNothingHappens(t *testing.T) {
	t.Parallel()
	now := time.Now()
	idle := func() *hands {
		return &hands{calms: true, lookedAt: now.Add(-fetchPollInterval), busyAt: now.Add(-calmAfter - time.Second), running: map[int64]store.Handed{}}
	}
	require.True(t, idle().calm(now))
	require.Greater(t, calmAfter, 5*time.Second+fetchPollInterval)
	for name, change := range map[string]func(*hands){
		"somebody told":         (*hands).stir,
		"told of a moment ago":  func(h *hands) { h.busyAt = now.Add(-calmAfter) },
		"asked a while ago":     func(h *hands) { h.lookedAt = now.Add(-calmPoll) },
		"a fetch found a job":   func(h *hands) { h.fetched(1, 10) },
		"the database has more": func(h *hands) { h.backlog = true },
		"nobody can tell":       func(h *hands) { h.calms = false },
	} {
		h := idle()
		change(h)
		require.False(t, h.calm(now), name)
	}
	h := idle()
	h.stir()
	_, ask := h.next(10)
	require.True(t, ask)
	h.lookedAt = now
	_, ask = h.next(10)
	require.True(t, ask, "for six seconds as ever")
}

func TestHandsCloseWithWhatWasNeverBegun(t *testing.T) {
	t.Parallel()
	h := newHands(100, func() int { return 0 })
	h.give(h.take(3), handedJobs(7, 8, 9))
	require.Nil(t, h.work(7), "River has not asked for it")
	jobs, _ := h.next(2)
	require.Len(t, jobs, 2)
	require.Nil(t, h.work(7), "it has waited too long, and is loaded")
	h.forget(8)
	require.Empty(t, h.running)
	require.Equal(t, []int64{9}, h.close())
	require.Zero(t, h.take(10))
}
