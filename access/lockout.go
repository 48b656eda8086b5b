package access

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"postrider/policy"
)

// LockedError says that so many wrong passwords were shown for a name, or from an address, that none is looked at now,
// the right one included.
type LockedError struct {
	// Until is when the next one will be looked at, by the database's clock.
	Until time.Time
}

// Error says until when.
func (e *LockedError) Error() string {
	return fmt.Sprintf("too many wrong passwords: none is looked at before %s", e.Until.UTC().Format(time.RFC3339))
}

const (
	// freeFailures are wrong passwords that cost nothing but their hashing. From then on each doubles the time until the
	// next is looked at, from firstLock to longestLock: a hundred guesses a day, of a password that has 12 bytes or more.
	freeFailures = 10
	firstLock    = time.Second
	longestLock  = 15 * time.Minute
	// failuresFade is how long after the last wrong password they are all forgotten.
	failuresFade = 24 * time.Hour
	// tellEvery is how often the audit is told of the wrong passwords for one name: guessing must not fill it.
	tellEvery = time.Minute
)

// failures are the wrong passwords for one name since somebody last signed in by it: from everywhere but where its
// owner has signed in from, or from one such place.
type failures struct {
	count int
	// at is when the last one was shown, until when none is looked at.
	at, until time.Time
}

// another notes one more.
func (f failures) another(now time.Time) failures {
	if now.Sub(f.at) >= failuresFade {
		f.count = 0
	}
	f.count, f.at, f.until = f.count+1, now, time.Time{}
	if beyond := f.count - freeFailures; beyond >= 0 {
		lock := longestLock
		if beyond < 10 { // 2^10 s is longer than the longest
			lock = min(firstLock<<beyond, longestLock)
		}
		f.until = now.Add(lock)
	}
	return f
}

// begins reports that this failure was the first that locked the name.
func (f failures) begins() bool { return f.count == freeFailures }

// untold are wrong passwords that the audit has not heard of.
type untold struct {
	count int
	since time.Time // when it last heard of some
}

// another notes one more, and says of how many the audit is to be told now; 0 = not yet.
func (u untold) another(now time.Time) (next untold, tell int) {
	u.count++
	if now.Sub(u.since) < tellEvery {
		return u, 0
	}
	return untold{since: now}, u.count
}

// mostStrangers bounds the memory of names that nobody has.
const mostStrangers = 10_000

// strangers remembers the wrong passwords for names that nobody has, as the table of users does for the others: else a
// lock-out would tell who exists.
type strangers struct {
	mu     sync.Mutex
	known  map[string]failures
	untold untold
}

func newStrangers() *strangers { return &strangers{known: map[string]failures{}} }

// lockedUntil is when a password for the name is looked at again.
func (s *strangers) lockedUntil(name string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name].until
}

// failed notes a wrong password, and says of how many the audit is to be told. It never hears the names: people type
// passwords into the wrong field.
func (s *strangers) failed(name string, now time.Time) (tell int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.known[name]
	if !known && len(s.known) >= mostStrangers {
		for other := range s.known { // any
			delete(s.known, other)
			break
		}
	}
	s.known[name] = before.another(now)
	s.untold, tell = s.untold.another(now)
	return tell
}

// wrongByAddress is how many wrong passwords an address may show, for whatever names: more than people behind one
// address mistype, and too few to try one password for many names.
var wrongByAddress = policy.Bucket{Burst: 30, Every: 10 * time.Second}

// addresses remembers on this node who showed wrong passwords.
type addresses struct {
	mu    sync.Mutex
	wrong *policy.Buckets[netip.Prefix]
}

func newAddresses() *addresses {
	return &addresses{wrong: policy.NewBuckets[netip.Prefix](wrongByAddress)}
}

// neighboursOf is whom an address is counted with. What is no address is nobody's, and shares one bucket.
func neighboursOf(address string) netip.Prefix {
	from, _ := netip.ParseAddr(address)
	return policy.Neighbours(from)
}

// placeOf is what sign_in_places calls it; "" for what is no address.
func placeOf(address string) string {
	if from := neighboursOf(address); from.IsValid() {
		return from.String()
	}
	return ""
}

// lockedUntil is when a password from there is looked at again.
func (a *addresses) lockedUntil(address string, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Add(a.wrong.Wait(neighboursOf(address), now))
}

// failed notes a wrong password.
func (a *addresses) failed(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong.Take(neighboursOf(address), now)
}
