package store

import "slices"

// Condition is what must be so for a topic, an event subscription, a retry policy or a user to be changed, looked at in the change's own transaction. The
// zero Condition always holds.
type Condition struct {
	// Present: it exists. Absent: it does not.
	Present, Absent bool
	// Versions: it exists in one of these; nil = in any.
	Versions []int64
}

// versioned is a topic, an event subscription, a retry policy or a user; nil where there is none.
type versioned interface {
	*Topic | *Subscription | *User | *ownedPolicy
	comparable
	version() int64
}

func (t *Topic) version() int64        { return t.Version }
func (s *Subscription) version() int64 { return s.Version }
func (u *User) version() int64         { return u.Version() }
func (p *ownedPolicy) version() int64  { return p.Version }

// allow is ErrPrecondition where a condition does not hold.
func allow[V versioned](when []Condition, existing V) error {
	var none V
	for _, c := range when {
		switch exists := existing != none; {
		case c.Absent && exists,
			(c.Present || c.Versions != nil) && !exists,
			c.Versions != nil && !slices.Contains(c.Versions, existing.version()):
			return ErrPrecondition
		}
	}
	return nil
}
