package postgres

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// corrected is the database's clock, which is by so much ahead of the process's.
func corrected(by time.Duration) *Clock {
	c := NewClock()
	c.Correct(time.Now().Add(by), time.Now(), time.Now())
	return c
}

func timeOf(id uuid.UUID) time.Time {
	return time.UnixMilli(int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 |
		int64(id[5]))
}

// The live tail, lists and redeliveries look for events by ids, from a time of the database's: an id that the process's
// clock had made was an hour off.
func TestIdsOfEventsHaveTheDatabasesTime(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		clock := corrected(off)
		for _, id := range NewIDs(clock).Make(3) {
			require.WithinDuration(t, clock.Now(), timeOf(id), time.Second, "the process is %s off", off)
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
		}
	}
}

func TestIdsAreInTheirOrderWhoeverMakesThem(t *testing.T) {
	t.Parallel()
	const makers, each = 8, 2000
	ids, made := NewIDs(corrected(0)), make([][]uuid.UUID, makers)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			for range each / 10 {
				made[i] = append(made[i], ids.Make(10)...)
			}
		})
	}
	group.Wait()
	all := map[uuid.UUID]bool{}
	for _, own := range made {
		require.True(t, slices.IsSortedFunc(own, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }))
		for _, id := range own {
			all[id] = true
		}
	}
	require.Len(t, all, makers*each)
}

// The database's time is read anew each second, and may then be a little earlier. One that was set back is another
// matter.
func TestIdsWhenTheDatabasesTimeIsEarlier(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, time.UTC)
	made := IDs{now: func() time.Time { return now }}
	first := made.One()
	require.Equal(t, now.Truncate(time.Millisecond), timeOf(first).UTC())
	now = now.Add(-900 * time.Millisecond)
	second := made.One()
	require.Positive(t, bytes.Compare(second[:], first[:]))
	require.WithinDuration(t, now, timeOf(second), time.Second)
	now = now.Add(-time.Hour)
	require.Equal(t, now.Truncate(time.Millisecond), timeOf(made.One()).UTC(),
		"it would be an hour late for what is published from now on")
}

// An answer that comes late says less than what is known, and must not set the clock back: the next event's id would be
// smaller than the last one's.
func TestLateAnswersDoNotSetTheClockBack(t *testing.T) {
	t.Parallel()
	start := time.Now()
	known := &moment{database: start.Add(time.Hour), process: start}
	for name, c := range map[string]struct {
		said, after time.Duration // start: what the database said, and when that was there; it was asked after 10 s
		kept        bool
	}{
		"at once":           {time.Hour + 10*time.Second, 10 * time.Second, true},
		"2 s late":          {time.Hour + 10*time.Second, 12 * time.Second, true},
		"asked in vain":     {time.Hour + 12*time.Second, 12 * time.Second, true},
		"set back":          {10 * time.Second, 10 * time.Second, false},
		"set forward":       {time.Hour + 20*time.Second, 12 * time.Second, false},
		"the process slept": {time.Hour + 40*time.Second, 11 * time.Second, false},
	} {
		said, asked, answered := start.Add(c.said), start.Add(10*time.Second), start.Add(c.after)
		now := known.corrected(said, asked, answered)
		require.Equal(t, c.kept, now == known, name)
		if !c.kept {
			require.Equal(t, said, now.at(answered), name)
		}
	}
	require.Equal(t, start, (*moment)(nil).corrected(start, start, start).at(start))
}
