package policy

import "time"

// Bucket is a token bucket: Burst tokens at once, and a new one after each Every. All that has to be kept of one is the
// moment when it is full again; a moment that has passed, such as the zero time, is a full bucket.
type Bucket struct {
	// Burst is how many tokens a full bucket holds, at least 1.
	Burst int
	// Every is the time between two new tokens.
	Every time.Duration
}

// Wait is how long it takes until there is a token; 0 = there is one.
func (b Bucket) Wait(full, now time.Time) time.Duration {
	if full.Before(now) {
		return 0 // full is often the zero time, and the difference more than a duration can hold
	}
	return max(0, full.Sub(now)-time.Duration(b.Burst-1)*b.Every)
}

// Take takes a token and returns when the bucket is full again. An empty bucket goes into debt, by one Burst at most.
func (b Bucket) Take(full, now time.Time) time.Time {
	if full.Before(now) {
		full = now
	}
	full = full.Add(b.Every)
	if deepest := now.Add(2 * time.Duration(b.Burst) * b.Every); full.After(deepest) {
		return deepest
	}
	return full
}
