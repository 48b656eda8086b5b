package jobs

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSpacedTask: a task that takes a second runs every 21 s, one that takes a minute every 90 s, and a request ends
// the pause.
func TestSpacedTask(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration][]int{0: {0, 1, 2}, time.Second: {0, 21, 42}, time.Minute: {0, 90, 180}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			began, requested := time.Now(), make(chan struct{})
			var runs []int // seconds after the start
			l := loop{time.Second, requested, []task{{unbounded: true, spaced: true, run: func(context.Context) error {
				runs = append(runs, int(time.Since(began).Seconds()))
				<-time.After(took)
				return nil
			}}}}
			go l.repeat(ctx, slog.New(slog.DiscardHandler))
			<-time.After(time.Duration(want[2])*time.Second + took + time.Millisecond)
			requested <- struct{}{}
			synctest.Wait()
			stop()
			<-time.After(took)
			require.Equal(t, append(want, want[2]+int(took.Seconds())), runs)
		})
	}
}

// A spaced task that fails runs again at its interval.
func TestSpacedTaskThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		var runs []time.Duration
		l := loop{2 * time.Second, nil, []task{{unbounded: true, spaced: true, run: func(context.Context) error {
			runs = append(runs, time.Since(began))
			<-time.After(time.Second)
			return context.DeadlineExceeded
		}}}}
		go l.repeat(ctx, slog.New(slog.DiscardHandler))
		<-time.After(5 * time.Second)
		stop()
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 3 * time.Second}, runs)
	})
}

// A pass over a million deliveries takes 8.5 s; a slow one does not delay the next one for a day.
func TestPauseAfterASweep(t *testing.T) {
	t.Parallel()
	require.Equal(t, 850*time.Second, afterSweep(8500*time.Millisecond, 1))
	require.Equal(t, 1700*time.Second, afterSweep(8500*time.Millisecond, 2))
	require.Equal(t, 3*time.Hour, afterSweep(10*time.Minute, 3))
}
