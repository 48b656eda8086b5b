package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

// groupsOf returns the sizes of the groups of items that arrive at these distances.
func groupsOf(t *testing.T, g postgres.Gathering, distances ...time.Duration) (sizes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := postgres.NewGatheringBatcher[int](g)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Run(ctx, postgres.AtMost[int](1000), func(group []int) { sizes = append(sizes, len(group)) })
		}()
		for i, distance := range distances {
			time.Sleep(distance) //nolint:forbidigo // virtual time
			b.Add(i)
			synctest.Wait()
		}
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		stop()
		<-done
	})
	return sizes
}

func repeat(n int, d time.Duration) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = d
	}
	return list
}

func TestGathering(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	patient := postgres.Gathering{Enough: 100, Step: 50*ms + ms/2, Longest: 50*ms + ms/2}
	quick := postgres.Gathering{Enough: 100, Step: 2*ms + ms/4, Worth: 4, Longest: 10 * ms}

	require.Equal(t, []int{1, 51, 51, 17}, groupsOf(t, patient, repeat(120, ms)...), "fast items fill the longest wait")
	require.Equal(t, []int{1, 100, 19}, groupsOf(t, patient, repeat(120, ms/4)...),
		"a group with enough items is processed")
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1}, groupsOf(t, patient, repeat(8, 80*ms)...),
		"slow items are processed alone")
	require.Equal(t, []int{1, 1, 1}, groupsOf(t, patient, repeat(3, 3*time.Second)...))
	require.Equal(t, []int{1, 3, 3, 3, 3, 3}, groupsOf(t, quick, repeat(16, ms)...),
		"a step that brings too few items ends the wait")
	require.Equal(t, []int{1, 23, 23, 3}, groupsOf(t, quick, repeat(50, ms/2)...),
		"steps that bring enough follow one another")
	require.Equal(t, []int{1, 39, 1, 39}, groupsOf(t, quick, append(repeat(40, 0), append([]time.Duration{100 * ms},
		repeat(39, 0)...)...)...), "a pause ends the wait")
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1},
		groupsOf(t, quick, slices.Repeat([]time.Duration{4 * ms, ms}, 10)...), "two clients seldom wait")
}

// Clients that add an item only after the last one was processed do not wait for others, once their groups have shown
// how many they are.
func TestGatheringInAClosedLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ms, clients = time.Millisecond, 4
		b := postgres.NewGatheringBatcher[chan struct{}](postgres.Gathering{
			Enough: 100, Step: 3 * ms, Worth: 6, Longest: 20 * ms,
		})
		ctx, stop := context.WithCancel(t.Context())
		go b.Run(ctx, postgres.AtMost[chan struct{}](100), func(group []chan struct{}) {
			time.Sleep(2 * ms) //nolint:forbidigo // virtual time
			for _, processed := range group {
				close(processed)
			}
		})
		add := func(thinks time.Duration) time.Duration {
			time.Sleep(thinks) //nolint:forbidigo // virtual time
			began, processed := time.Now(), make(chan struct{})
			b.Add(processed)
			<-processed
			return time.Since(began)
		}
		took := func(rounds int) (last time.Duration) {
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for range rounds {
						if t := add(time.Duration(i+1) * ms / 10); i == 0 {
							last = t
						}
					}
				})
			}
			all.Wait()
			return last
		}
		require.Equal(t, 2*ms+3*ms/10, took(20), "the first waits for the fourth, and no longer")
		var more sync.WaitGroup
		more.Go(func() { add(0); add(0); add(0) }) // a fifth
		took(3)
		more.Wait()
		require.Equal(t, 2*ms+3*ms/10, took(20))
		stop()
	})
}

// Groups of one size during which items arrive show no closed loop: when the rate rises, the next group grows.
func TestGatheringInAnOpenLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		b := postgres.NewGatheringBatcher[int](postgres.Gathering{Enough: 100, Step: 3*ms + ms/4, Longest: 3*ms + ms/4})
		ctx, stop := context.WithCancel(t.Context())
		var sizes []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Run(ctx, postgres.AtMost[int](100), func(group []int) {
				if sizes == nil {
					time.Sleep(ms / 10) //nolint:forbidigo // so that no group is taken at the time of an arrival
				}
				sizes = append(sizes, len(group))
				time.Sleep(2*ms - ms/4) //nolint:forbidigo // virtual time
			})
		}()
		for i, distance := range slices.Concat(repeat(40, ms), repeat(40, ms/4)) {
			time.Sleep(distance) //nolint:forbidigo // virtual time
			b.Add(i)
		}
		stop()
		<-done
		require.Equal(t, []int{5, 5, 5, 5}, sizes[2:6])
		require.Greater(t, slices.Max(sizes), 15)
	})
}

func TestGatheringEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := postgres.NewGatheringBatcher[int](postgres.Gathering{Enough: 9, Step: time.Hour, Longest: time.Hour})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		b.Add(1)
		n := 0
		b.Run(ctx, postgres.AtMost[int](9), func(group []int) { n += len(group) })
		require.Equal(t, 1, n)
	})
}

// A wait that brought nothing is not repeated for each item, and an item long after the last one never waits.
func TestGatheringCoolsDown(t *testing.T) {
	t.Parallel()
	for distance, waits := range map[time.Duration][2]int{30 * time.Millisecond: {1, 15}, 3 * time.Second: {0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			const longest = 50 * time.Millisecond
			b := postgres.NewGatheringBatcher[int](postgres.Gathering{Enough: 9, Step: longest, Longest: longest})
			ctx, stop := context.WithCancel(t.Context())
			waited := 0
			added := make(chan struct{})
			go b.Run(ctx, postgres.AtMost[int](9), func([]int) { close(added) })
			for range 100 {
				added = make(chan struct{})
				began := time.Now()
				b.Add(1)
				<-added
				if time.Since(began) > 0 {
					waited++
				}
				time.Sleep(distance) //nolint:forbidigo // virtual time
			}
			stop()
			require.LessOrEqual(t, waited, waits[1])
			require.GreaterOrEqual(t, waited, waits[0], "the rate may have risen")
		})
	}
}

// What returns to a batcher while it stops is processed before its Runs end.
func TestRunsEndAfterWhatIsAddedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := postgres.NewBatcher[int]()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		b.Add(0)
		var processed []int
		var runs sync.WaitGroup
		for range 2 {
			runs.Go(func() {
				b.Run(ctx, postgres.AtMost[int](9), func(group []int) {
					if processed = append(processed, group...); len(processed) < 3 {
						b.AddLater(time.Second, len(processed))
					}
				})
			})
		}
		runs.Wait()
		require.Equal(t, []int{0, 1, 2}, processed)
	})
}

// Items that arrive while a group waits may join it, within its limit.
func TestTakeMore(t *testing.T) {
	t.Parallel()
	b := postgres.NewBatcher[int]()
	ctx, stop := context.WithCancel(t.Context())
	b.Add(1)
	var fits func(int) bool
	newFits := func() func(int) bool { fits = postgres.AtMost[int](3)(); return fits }
	var groups [][]int
	b.Run(ctx, newFits, func(group []int) {
		if len(groups) == 0 {
			b.Add(2, 3, 4, 5)
			stop()
		}
		groups = append(groups, append(group, b.TakeMore(fits)...))
	})
	require.Equal(t, [][]int{{1, 2, 3}, {4, 5}}, groups)
}
