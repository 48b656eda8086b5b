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

// corrected is a database's clock that is ahead of the process's.
func corrected(by time.Duration) *Clock {
	c := NewClock()
	c.Correct(time.Now().Add(by), time.Now(), time.Now())
	return c
}

func timeOf(id uuid.UUID) time.Time {
	return time.UnixMilli(int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 |
		int64(id[5]))
}

// The live tail, lists and redeliveries find the events of a time by their ids. With the process's clock an id can be
// an hour off.
func TestIDsHaveTheDatabasesTime(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		clock := corrected(off)
		for _, id := range NewIDs(clock).Make(3) {
			require.WithinDuration(t, clock.Now(), timeOf(id), time.Minute, "the process is %s off", off)
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
		}
	}
}

func TestConcurrentIDsAscend(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 2000
	ids, made := NewIDs(corrected(0)), make([][]uuid.UUID, goroutines)
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
	require.Len(t, all, goroutines*each)
}

// The clock is corrected each second, and may then be a little earlier: ids continue from the last one. They follow a
// clock that was set back by an hour.
func TestIDsAfterTheClockWasSetBack(t *testing.T) {
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
		"otherwise later events have ids of an hour later")
}

// A slow query must not set the clock back: the next event's id would be smaller than the last one's.
func TestSlowQueriesDoNotSetTheClockBack(t *testing.T) {
	t.Parallel()
	start := time.Now()
	known := &moment{database: start.Add(time.Hour), process: start}
	for name, c := range map[string]struct {
		read, after time.Duration // since start: the database's time, and its arrival; the query was sent after 10 s
		kept        bool
	}{
		"immediate":         {time.Hour + 10*time.Second, 10 * time.Second, true},
		"2 s slow":          {time.Hour + 10*time.Second, 12 * time.Second, true},
		"nothing new":       {time.Hour + 12*time.Second, 12 * time.Second, true},
		"set back":          {10 * time.Second, 10 * time.Second, false},
		"set forward":       {time.Hour + 20*time.Second, 12 * time.Second, false},
		"the process slept": {time.Hour + 40*time.Second, 11 * time.Second, false},
	} {
		read, sent, returned := start.Add(c.read), start.Add(10*time.Second), start.Add(c.after)
		now := known.corrected(read, sent, returned)
		require.Equal(t, c.kept, now == known, name)
		if !c.kept {
			require.Equal(t, read, now.at(returned), name)
		}
	}
	require.Equal(t, start, (*moment)(nil).corrected(start, start, start).at(start))
}
