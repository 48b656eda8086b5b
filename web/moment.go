package web

import (
	"fmt"
	"time"
)

// moment is a time as pages show it: exactly, in UTC, and by its distance from now.
type moment struct {
	Machine  string // RFC 3339, for <time datetime>
	Absolute string // 2026-01-31 09:30:15 UTC
	Relative string // 5 minutes ago
}

func momentOf(t, now time.Time) moment {
	t = t.UTC()
	return moment{
		Machine:  t.Format(time.RFC3339Nano),
		Absolute: t.Format("2006-01-02 15:04:05 MST"),
		Relative: relative(now.Sub(t)),
	}
}

// relative says how long ago, or how far ahead. Both times are the database's; a page takes a moment to be made, and what is due in less
// than a second is now.
func relative(ago time.Duration) string {
	switch {
	case ago <= -time.Second:
		return "in " + count(-ago)
	case ago < time.Second:
		return "now"
	default:
		return count(ago) + " ago"
	}
}

// count gives a duration in its largest whole unit, and from a minute to ten in two: a countdown is read in seconds.
func count(d time.Duration) string {
	if d >= time.Minute && d < 10*time.Minute && d%time.Minute >= time.Second {
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d >= unit.long {
			return plural(int(d/unit.long), unit.name)
		}
	}
	return plural(int(d/time.Second), "second")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}
