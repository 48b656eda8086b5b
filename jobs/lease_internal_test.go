package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLeaseWatch(t *testing.T) {
	t.Parallel()
	const absent = -1
	rows := []struct {
		name  string
		beats []int64 // of the other node, as read after each own heartbeat
		dead  int     // the own heartbeat, counted from 0, after which it is dead; absent = never
	}{
		{"dead after four own heartbeats", []int64{7, 7, 7, 7, 7}, 4},
		{"three are not enough", []int64{7, 7, 7, 7}, absent},
		{"a heartbeat begins the count anew", []int64{7, 7, 7, 7, 8, 8, 8, 8, 8}, 8},
		{"one that beats is never dead", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, absent},
		{"one that beats at every third", []int64{1, 1, 1, 2, 2, 2, 3, 3, 3, 4}, absent},
		{"a counter that went back beats", []int64{7, 7, 7, 7, 1, 1, 1, 1}, absent},
		{"registered again begins anew", []int64{7, 7, 7, 7, absent, 7, 7, 7, 7}, absent},
		{"never seen", []int64{absent, absent, absent, absent, absent, absent}, absent},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			watch := leaseWatch{}
			died := absent
			for i, beat := range row.beats {
				read := map[string]int64{"alive": int64(i)}
				if beat != absent {
					read["other"] = beat
				}
				dead := watch.dead(read)
				require.NotContains(t, dead, "alive")
				if last, ok := dead["other"]; ok && died == absent {
					died = i
					require.Equal(t, beat, last, "the heartbeat that is removed: a node that beats again stays")
				}
			}
			require.Equal(t, row.dead, died)
		})
	}
}

// A node whose removal failed is dead at the next heartbeat, too.
func TestLeaseWatchReportsAgain(t *testing.T) {
	t.Parallel()
	watch := leaseWatch{}
	for range 5 {
		watch.dead(map[string]int64{"other": 7})
	}
	require.Equal(t, map[string]int64{"other": 7}, watch.dead(map[string]int64{"other": 7}))
}
