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

// relative says how long ago. Rows carry the database's clock, which may be ahead of ours: a little in the future is
// just now as well.
func relative(ago time.Duration) string {
	switch {
	case ago <= -time.Minute:
		return "in " + count(-ago)
	case ago < 5*time.Second:
		return "just now"
	default:
		return count(ago) + " ago"
	}
}

// count gives a duration in its largest whole unit.
func count(d time.Duration) string {
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
	return fmt.Sprintf("%d %ss", n, noun)
}
