package policy_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	b := policy.NewBuckets[int](policy.Bucket{Burst: 2, Every: time.Second})
	b.Take(-1, now)
	require.Zero(t, b.Wait(-1, now))
	b.Take(-1, now)
	require.Equal(t, time.Second, b.Wait(-1, now))
	require.Zero(t, b.Wait(-2, now), "each has its own")
	for i := range 2 * policy.MaxBuckets {
		b.Take(i, now)
	}
	require.Equal(t, policy.MaxBuckets, b.Len())
}

func TestNeighbours(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.7/32", "::ffff:203.0.113.7": "203.0.113.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		require.Equal(t, want, policy.ClientNetwork(netip.MustParseAddr(address)).String())
	}
	require.Zero(t, policy.ClientNetwork(netip.Addr{}))
}
