package migrations

import (
	_ "embed"
	"strings"
)

// deliveryEnds is the migration that creates the function end_deliveries.
//
//go:embed 00021_delivery_ends.sql
var deliveryEnds string

// EndsSQL is the part of end_deliveries that stores the history and the counts of the deliveries "finished". The
// recorder includes it in its own statements.
var EndsSQL = part("ends")

// DeadLettersSQL is the part of end_deliveries that stores the dead letters of the deliveries "finished".
var DeadLettersSQL = part("dead letters")

// part returns the lines between "-- begin NAME" and "-- end".
func part(name string) string {
	_, after, begins := strings.Cut(deliveryEnds, "-- begin "+name+"\n")
	lines, _, ends := strings.Cut(after, "-- end\n")
	if !begins || !ends {
		panic("00021_delivery_ends.sql has no part " + name)
	}
	return lines
}
