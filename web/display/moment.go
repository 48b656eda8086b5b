package display

import (
	"fmt"
	"time"
)

// Moment is a time as pages show it: in UTC, and relative to now.
type Moment struct {
	Machine  string // RFC 3339, for <time datetime>
	Absolute string // 2026-01-31 09:30:15 UTC
	Relative string // 5 minutes ago
}

// MomentOf is a time as pages show it at the time now.
func MomentOf(t, now time.Time) Moment {
	t = t.UTC()
	return Moment{
		Machine:  t.Format(time.RFC3339Nano),
		Absolute: t.Format("2006-01-02 15:04:05 MST"),
		Relative: Relative(now.Sub(t)),
	}
}

// Relative prints a time that is so long ago, or ahead if it is negative. Less than a second is "now": rendering a page
// takes a moment.
func Relative(ago time.Duration) string {
	switch {
	case ago <= -time.Second:
		return "in " + Count(-ago)
	case ago < time.Second:
		return "now"
	default:
		return Count(ago) + " ago"
	}
}

// Count prints a duration in its largest whole unit, and from 1 to 10 minutes in two, for countdowns.
func Count(d time.Duration) string {
	if d >= time.Minute && d < 10*time.Minute && d%time.Minute >= time.Second {
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d >= unit.long {
			return Plural(int(d/unit.long), unit.name)
		}
	}
	return Plural(int(d/time.Second), "second")
}

// Plural is a number of things: "1 event", "2 events".
func Plural(n any, noun string) string {
	if count := Grouped(n); count != "1" {
		return count + " " + noun + "s"
	}
	return "1 " + noun
}
