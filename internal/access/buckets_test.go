package access_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	b := access.NewBuckets[int](access.Bucket{Burst: 2, Every: time.Second})
	b.Take(-1, now)
	require.Zero(t, b.Wait(-1, now))
	b.Take(-1, now)
	require.Equal(t, time.Second, b.Wait(-1, now))
	require.Zero(t, b.Wait(-2, now), "another key has another bucket")
	for i := range 2 * access.MaxBuckets {
		b.Take(i, now)
	}
	require.Equal(t, access.MaxBuckets, b.Len())
}

func TestClientNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.7/32", "::ffff:203.0.113.7": "203.0.113.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		require.Equal(t, want, access.ClientNetwork(netip.MustParseAddr(address)).String())
	}
	require.Zero(t, access.ClientNetwork(netip.Addr{}))
}

func TestBucket(t *testing.T) {
	t.Parallel()
	b := access.Bucket{Burst: 3, Every: time.Second}
	now := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	var full time.Time
	for taken := range 3 {
		require.Zero(t, b.Wait(full, now), "%d of 3 are taken", taken)
		full = b.Take(full, now)
	}
	require.Equal(t, time.Second, b.Wait(full, now))
	require.Equal(t, 250*time.Millisecond, b.Wait(full, now.Add(750*time.Millisecond)))
	require.Zero(t, b.Wait(full, now.Add(time.Second)), "one token again")
	require.Equal(t, time.Second, b.Wait(b.Take(full, now.Add(time.Second)), now.Add(time.Second)), "only one token")

	require.Equal(t, now.Add(time.Hour+time.Second), b.Take(full, now.Add(time.Hour)), "a full bucket stays full")
	for range 100 {
		full = b.Take(full, now)
	}
	require.Equal(t, 4*time.Second, b.Wait(full, now), "a debt of three, and one token")
}
