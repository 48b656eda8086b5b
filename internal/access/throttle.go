package access

import (
	"fmt"
	"net/netip"
	"time"
)

// LockedError means: no password for the name, or from the address, is checked now, not even the right one.
type LockedError struct {
	// Wait is how long until the next password is checked, in whole seconds.
	Wait time.Duration
}

// Error names the wait.
func (e *LockedError) Error() string {
	return fmt.Sprintf("too many wrong passwords; try again in %s", e.Wait)
}

// The number of wrong passwords after which a node checks no more, and the time until it checks the next one.
var (
	// wrongPerAddress is more than the typing errors of users behind one address, and too few to try many names.
	wrongPerAddress = Bucket{Burst: 30, Every: 10 * time.Second}
	// wrongPerSource is for one name from one address, so that a client elsewhere does not lock out its owner.
	wrongPerSource = Bucket{Burst: 10, Every: time.Minute}
	// wrongPerName is for one name from all addresses. Only a distributed attack exceeds it.
	wrongPerName = Bucket{Burst: 1000, Every: 10 * time.Second}
	// wrongAudited bounds the rows of wrong passwords in the audit. All names share it: with separate buckets, the time of
	// the commit would show which names have a user.
	wrongAudited = Bucket{Burst: 100, Every: time.Second}
)

// source is a name and the address that passwords for it come from: an IPv4 address, an IPv6 /64, or none.
type source struct {
	name    [32]byte // SHA-256, whether a user has the name or not
	address netip.Prefix
}

func sourceOf(name, address string) source {
	parsed, _ := netip.ParseAddr(address) // the zero address if it is none
	return source{name: hashSecret(name), address: ClientNetwork(parsed)}
}

// throttle counts the wrong passwords that this node was sent.
type throttle struct {
	addresses *Buckets[netip.Prefix]
	sources   *Buckets[source]
	names     *Buckets[[32]byte]
	audited   *Buckets[struct{}]
}

func newThrottle() *throttle {
	return &throttle{
		addresses: NewBuckets[netip.Prefix](wrongPerAddress), sources: NewBuckets[source](wrongPerSource),
		names: NewBuckets[[32]byte](wrongPerName), audited: NewBuckets[struct{}](wrongAudited),
	}
}

// check returns a *LockedError while one of the source's buckets is empty.
func (t *throttle) check(s source, now time.Time) error {
	wait := max(t.addresses.Wait(s.address, now), t.sources.Wait(s, now), t.names.Wait(s.name, now))
	if wait == 0 {
		return nil
	}
	return &LockedError{(wait + time.Second - 1).Truncate(time.Second)}
}

// wrong counts a wrong password, and reports whether the audit gets a row of it.
func (t *throttle) wrong(s source, now time.Time) (audit bool) {
	t.addresses.Take(s.address, now)
	t.sources.Take(s, now)
	t.names.Take(s.name, now)
	return t.audited.TryTake(struct{}{}, now) == 0
}
