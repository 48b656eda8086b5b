package terminal

import (
	"fmt"
	"strings"
)

// Plural is a number of things: "1 event", "2 deliveries". thing is one of them.
func Plural[N int | int64](n N, thing string) string {
	if n != 1 {
		thing = many(thing)
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func many(thing string) string {
	switch {
	case strings.HasSuffix(thing, "y") && !strings.HasSuffix(thing, "ay"): // delivery, policy; day
		return strings.TrimSuffix(thing, "y") + "ies"
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "ch"): // address, batch
		return thing + "es"
	default:
		return thing + "s"
	}
}

// Either is yes or no, whichever holds.
func Either[T any](holds bool, yes, no T) T {
	if holds {
		return yes
	}
	return no
}
