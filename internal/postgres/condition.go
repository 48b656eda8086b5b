package postgres

import (
	"fmt"
	"slices"
)

// Version is the version of a record's settings; 0 = the record does not exist. Its text is an entity tag (RFC 9110,
// 8.8.3).
type Version int64

// String returns the entity tag.
func (v Version) String() string { return fmt.Sprintf(`"%d"`, int64(v)) }

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
	Versions []Version
}

// CheckConditions returns ErrPrecondition if a condition is false for a record with this version.
func CheckConditions(when []Condition, version Version) error {
	for _, c := range when {
		exists := version != 0
		if c.Absent && exists || c.Present && !exists ||
			c.Versions != nil && (!exists || !slices.Contains(c.Versions, version)) {
			return ErrPrecondition
		}
	}
	return nil
}
