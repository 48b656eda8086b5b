package policy_test

import (
	"slices"
	"strings"
	"testing"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestBatchSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                 string
		maxEvents, kilobytes *int
		want                 policy.BatchSettings
		on                   bool
	}{
		{"both absent: off", nil, nil, policy.BatchSettings{1, 64}, false},
		{"only the maximum: 64 KB", ptr(100), nil, policy.BatchSettings{100, 64}, true},
		{"only the size: 10 events", nil, ptr(256), policy.BatchSettings{10, 256}, true},
		{"both", ptr(5000), ptr(1024), policy.BatchSettings{5000, 1024}, true},
		{"the least that is a batch", ptr(2), ptr(1), policy.BatchSettings{2, 1}, true},
		{"the management API's defaults, written out: off", ptr(1), ptr(64), policy.BatchSettings{1, 64}, false},
		{"a maximum of one: off", ptr(1), nil, policy.BatchSettings{1, 64}, false},
	} {
		got, on := policy.ResolveBatch(tt.maxEvents, tt.kilobytes)
		require.Equal(t, tt.want, got, tt.name)
		require.Equal(t, tt.on, on, tt.name)
		for _, name := range []string{"ga-2021", "namespace-2023"} {
			require.NoError(t, builtin(t, name).CheckBatch(tt.maxEvents, tt.kilobytes), tt.name)
		}
	}
}

func TestCheckBatchWithoutBatching(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy               string
		maxEvents, kilobytes *int
		field, must          string
	}{
		{"ga-2019", ptr(2), ptr(64), "maxEventsPerBatch", "must be 1 or absent"},
		{"ga-2018", nil, ptr(64), "preferredBatchSizeInKilobytes", "must be absent"},
		{"preview-2017", ptr(10), nil, "maxEventsPerBatch", "must be 1 or absent"},
	} {
		invalid := requireField(t, builtin(t, tt.policy).CheckBatch(tt.maxEvents, tt.kilobytes), tt.field)
		require.Equal(t, tt.must+" under retry policy "+tt.policy+", which delivers each event separately",
			invalid.Message)
	}
	// Exports from Azure write out a maximum of 1, which is what these policies do.
	for _, p := range policy.Builtins() {
		require.NoError(t, p.CheckBatch(ptr(1), ptr(64)), p.Name)
		require.NoError(t, p.CheckBatch(nil, nil), p.Name)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	const kilobyte = 1024
	fourKB, three := policy.BatchSettings{5000, 4}, policy.BatchSettings{3, 1024}
	for _, tt := range []struct {
		name     string
		settings policy.BatchSettings
		sizes    []int
		want     int
	}{
		{"4 KB preferred, an event of 10 KB goes alone", fourKB, []int{10 * kilobyte}, 1},
		{"… without those after it", fourKB, []int{10 * kilobyte, 10, 10}, 1},
		{"… and without those before it", fourKB, []int{10, 10, 10 * kilobyte, 10}, 2},
		{"no events", fourKB, nil, 0},
		{"one event", fourKB, []int{100}, 1},
		{"more than the maximum", three, []int{1, 1, 1, 1}, 3},
		{"fewer than the maximum", three, []int{1, 1}, 2},
		{"1,000 bytes: four are 4,005 with brackets and commas", fourKB, []int{1000, 1000, 1000, 1000, 1000}, 4},
		{"exactly 4,096 bytes: [ 2,046 , 2,047 ]", fourKB, []int{2046, 2047, 1}, 2},
		{"one byte more", fourKB, []int{2047, 2047}, 1},
		{"exactly 4,096 bytes alone", fourKB, []int{4094, 1}, 1},
		{
			"1 KB holds 511 events of one byte: 1,023 with brackets and commas",
			policy.BatchSettings{5000, 1},
			slices.Repeat([]int{1}, 600), 511,
		},
		{"5,000 small events", policy.BatchSettings{5000, 1024}, slices.Repeat([]int{200}, 6000), 5000},
		{"zero settings", policy.BatchSettings{}, []int{1, 1}, 1},
	} {
		require.Equal(t, tt.want, tt.settings.Cut(tt.sizes), tt.name)
	}
}

// FuzzCut cuts a list of events into bodies. No body is empty, has more than the maximum, or is larger than the target
// unless it is one event. The next event would not have fit into it.
func FuzzCut(f *testing.F) {
	f.Add(uint16(10), uint16(4), []byte{10, 200, 255, 0, 3, 3, 3})
	f.Add(uint16(2), uint16(1), []byte{1, 1, 1, 1, 1})
	f.Add(uint16(4999), uint16(1023), slices.Repeat([]byte{255}, 300))
	f.Add(uint16(0), uint16(0), []byte{0, 0, 21})
	f.Fuzz(func(t *testing.T, maxEvents, kilobytes uint16, row []byte) {
		b := policy.BatchSettings{MaxEvents: 1 + int(maxEvents)%5000, PreferredKilobytes: 1 + int(kilobytes)%1024}
		row = row[:min(len(row), 1000)]
		sizes := make([]int, len(row))
		for i, n := range row {
			sizes[i] = int(n) * 48 // up to 12 KB
		}
		for len(sizes) > 0 {
			n := b.Cut(sizes)
			require.GreaterOrEqual(t, n, 1)
			require.LessOrEqual(t, n, min(b.MaxEvents, len(sizes)))
			target := b.PreferredKilobytes * 1024
			require.True(t, n == 1 || bodyLength(sizes[:n]) <= target, "%d events: over the target", n)
			if n < min(b.MaxEvents, len(sizes)) {
				require.Greater(t, bodyLength(sizes[:n+1]), target, "the next event would have fit")
			}
			sizes = sizes[n:]
		}
	})
}

// bodyLength writes a delivery's body.
func bodyLength(sizes []int) int {
	events := make([]string, len(sizes))
	for i, size := range sizes {
		events[i] = strings.Repeat("x", size)
	}
	return len("[" + strings.Join(events, ",") + "]")
}
