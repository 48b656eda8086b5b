package postgres

import (
	"fmt"
	"slices"
	"strconv"
)

// Version is the version of a record's settings. Its text is an entity tag (RFC 9110, 8.8.3).
type Version int64

// String returns the entity tag.
func (v Version) String() string { return `"` + strconv.FormatInt(int64(v), 10) + `"` }

// MarshalText implements encoding.TextMarshaler.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Version) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), `"%d"`, (*int64)(v))
	return err
}

// Condition is what must be true of a record for a change of it. The change's own transaction checks it. The zero
// Condition is always true.
type Condition struct {
	// Present: it exists. Absent: it does not.
	Present, Absent bool
	// Versions: it exists in one of these; nil = in any.
	Versions []int64
}

// CheckConditions returns ErrPrecondition if a condition is not true of a record with this version; 0 is one that does
// not exist.
func CheckConditions(when []Condition, version int64) error {
	for _, c := range when {
		switch exists := version != 0; {
		case c.Absent && exists,
			(c.Present || c.Versions != nil) && !exists,
			c.Versions != nil && !slices.Contains(c.Versions, version):
			return ErrPrecondition
		}
	}
	return nil
}
