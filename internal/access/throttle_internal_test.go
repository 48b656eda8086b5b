package access

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testNow = time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)

// requireWait fails unless passwords for the name from the address are checked after the wait; 0 = now.
func (t *throttle) requireWait(tb testing.TB, wait time.Duration, name, address string, now time.Time) {
	tb.Helper()
	err := t.check(sourceOf(name, address), now)
	if wait == 0 {
		require.NoError(tb, err)
		return
	}
	var locked *LockedError
	require.ErrorAs(tb, err, &locked)
	require.Equal(tb, wait, locked.Wait)
}

func TestWrongPasswordsForANameFromOneAddress(t *testing.T) {
	t.Parallel()
	th := newThrottle()
	for range 10 {
		th.requireWait(t, 0, "anna", "192.0.2.7", testNow)
		th.wrong(sourceOf("anna", "192.0.2.7"), testNow)
	}
	th.requireWait(t, time.Minute, "anna", "192.0.2.7", testNow)
	th.requireWait(t, time.Second, "anna", "192.0.2.7", testNow.Add(time.Minute-time.Nanosecond))
	th.requireWait(t, 0, "anna", "192.0.2.8", testNow)
	th.requireWait(t, 0, "bob", "192.0.2.7", testNow)
	require.EqualError(t, th.check(sourceOf("anna", "192.0.2.7"), testNow), "too many wrong passwords; try again in 1m0s")
	later := testNow.Add(time.Minute)
	th.requireWait(t, 0, "anna", "192.0.2.7", later)
	th.wrong(sourceOf("anna", "192.0.2.7"), later)
	th.requireWait(t, time.Minute, "anna", "192.0.2.7", later)
}

func TestWrongPasswordsFromOneAddress(t *testing.T) {
	t.Parallel()
	th := newThrottle()
	for i := range 30 {
		address := fmt.Sprintf("2001:db8::%d", i)
		th.requireWait(t, 0, fmt.Sprint("user", i), address, testNow)
		th.wrong(sourceOf(fmt.Sprint("user", i), address), testNow)
	}
	th.requireWait(t, 10*time.Second, "anna", "2001:db8::ffff", testNow)
	th.requireWait(t, 0, "anna", "2001:db8:0:1::ffff", testNow)
	th.requireWait(t, 0, "anna", "2001:db8::ffff", testNow.Add(10*time.Second))
	th.requireWait(t, 0, "anna", "not an address", testNow)
}

func TestWrongPasswordsForANameFromManyAddresses(t *testing.T) {
	t.Parallel()
	th := newThrottle()
	address := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) }
	for i := range 1000 {
		th.requireWait(t, 0, "anna", address(i), testNow)
		th.wrong(sourceOf("anna", address(i)), testNow)
	}
	th.requireWait(t, 10*time.Second, "anna", address(1000), testNow)
	th.requireWait(t, 0, "bob", address(1000), testNow)
	th.requireWait(t, 0, "anna", address(1000), testNow.Add(10*time.Second))
}

// Memory and audit stay bounded for any names and addresses.
func TestThrottleIsBounded(t *testing.T) {
	t.Parallel()
	th := newThrottle()
	rows := 0
	for i := range MaxBuckets + 5000 {
		address := fmt.Sprintf("2001:db8:%x::1", i)
		if th.wrong(sourceOf(fmt.Sprint("user", i), address), testNow.Add(time.Duration(i)*time.Millisecond)) {
			rows++
		}
	}
	require.Equal(t, []int{MaxBuckets, MaxBuckets, MaxBuckets},
		[]int{th.addresses.Len(), th.sources.Len(), th.names.Len()})
	require.Equal(t, 100+14, rows, "100, then one each second")
}
