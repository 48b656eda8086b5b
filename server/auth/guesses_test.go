package auth

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGuesses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	g := newGuesses()
	bad, good := Sender("203.0.113.7:1234"), Sender("203.0.113.8:1234")
	seen, unseen := DigestOf("seen"), DigestOf("unseen")
	g.Opened(bad, "orders", seen)
	for range wrongByAddress.Burst {
		require.Zero(t, g.Wait(bad, "orders", unseen, now))
		require.Zero(t, g.Wrong(bad, "orders", now))
	}
	require.Equal(t, time.Second, g.Wait(bad, "orders", unseen, now))
	require.Zero(t, g.Wait(bad, "orders", seen, now), "it was right before: who shares a proxy with a guesser goes on")
	require.Equal(t, time.Second, g.Wait(bad, "parcels", seen, now), "but not for another topic")
	g.Opened(good, "orders", unseen)
	require.Equal(t, time.Second, g.Wait(bad, "orders", unseen, now),
		"right from another address: guessing goes no faster for that")
	require.Zero(t, g.Wait(good, "orders", unseen, now))
	require.Zero(t, g.Wait(bad, "orders", unseen, now.Add(time.Second)))

	for i := range wrongByTopic.Burst - wrongByAddress.Burst {
		require.Zero(t,
			g.Wrong(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 32), "orders", now))
	}
	require.NotZero(t, g.Wrong(good, "orders", now), "from wherever they came")
	require.Zero(t, g.Wait(good, "orders", unseen, now), "right ones are not kept waiting by others")
	require.Zero(t, g.Wrong(good, "parcels", now))
}

func TestGuessesAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	g := newGuesses()
	for i := range maxRemembered + 100 {
		from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		g.Wrong(from, strconv.Itoa(i), now)
		g.Opened(from, strconv.Itoa(i), DigestOf(strconv.Itoa(i)))
	}
	require.Equal(t, maxRemembered, g.addresses.Len())
	require.Equal(t, maxRemembered, g.topics.Len())
	require.Len(t, g.valid, maxRemembered)
	last := netip.MustParsePrefix("10.0.39.115/32") // 10,099
	for range wrongByAddress.Burst - 1 {
		g.Wrong(last, "orders", now)
	}
	require.NotZero(t, g.addresses.Wait(last, now), "the last one is kept")
}

func TestSender(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"203.0.113.7:80":            "203.0.113.7/32",
		"[::ffff:203.0.113.7]:80":   "203.0.113.7/32",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"@":                         "invalid Prefix",
		"":                          "invalid Prefix",
	} {
		require.Equal(t, want, Sender(remote).String(), remote)
	}
}
