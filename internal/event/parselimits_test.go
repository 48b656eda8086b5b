package event

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	parse := func(l Limits) func(string) ([]Event, error) {
		return func(body string) ([]Event, error) {
			return parseBody(EventGrid, "", []byte(body), "orders", l)
		}
	}
	three := "[" + gridEvent + ", " + gridEvent + " ," + gridEvent + "]"
	size := len(gridEvent)
	for _, fits := range []Limits{{MaxEvents: 3}, {MaxEventBytes: size}, {MaxDepth: 1}} {
		events, err := parse(fits)(three)
		require.NoError(t, err)
		require.Len(t, events, 3)
	}
	many := "[" + strings.Repeat(gridEvent+",", 5000) + gridEvent + "]"
	for _, row := range []struct {
		limits Limits
		rejection
	}{
		{Limits{MaxEvents: 2}, rejection{"one event too many", three, "[2]", "a request has at most 2 events"}},
		{Limits{}, rejection{"5,001 events", many, "[5000]", "a request has at most 5000 events"}},
		{Limits{MaxEventBytes: size}, rejection{
			"one byte too many", "[" + gridEvent + "," + change(gridEvent, "t", "tt") + "]", "[1]",
			fmt.Sprintf("an event has at most %d bytes, this one has %d", size, size+1),
		}},
		{Limits{MaxEventBytes: size}, rejection{
			"one byte too many in its usual form", "[" + change(gridEvent, `"1"`, `12`) + "]", "[0]",
			fmt.Sprintf("an event has at most %d bytes, this one has %d", size, size+1),
		}},
	} {
		requireRejections(t, parse(row.limits), 413, CodePayloadTooLarge, []rejection{row.rejection})
	}
	_, err := parse(Limits{MaxDepth: 1})(grid(`"data":{}`))
	require.EqualError(t, err, "events[0]: nested deeper than 1 levels, at byte 91 of the body")
}

// The names of a megabyte of members must not all be compared with each other: 80,000 would need three billion
// comparisons.
func TestParseManyMembers(t *testing.T) {
	t.Parallel()
	var members []string
	for i := range 80_000 {
		members = append(members, fmt.Sprintf(`"m%d":0`, i))
	}
	events, err := parseGrid(grid(strings.Join(members, ",")))
	require.NoError(t, err)
	require.Len(t, events, 1)
	members = append(members, `"\u006d79999":0`)
	_, err = parseGrid(grid(strings.Join(members, ",")))
	require.EqualError(t, err, "events[0].m79999: appears twice")
}

// Both ways of comparing find a duplicate at the end of n members.
func TestParseDuplicateNames(t *testing.T) {
	t.Parallel()
	for n := 1; n < 3*quadratic; n++ {
		var members strings.Builder
		for i := range n {
			fmt.Fprintf(&members, `"m%d":0,`, i)
		}
		_, err := parseGrid(grid(members.String() + `"last":0`))
		require.NoError(t, err, n)
		_, err = parseGrid(grid(members.String() + `"m0":0`))
		require.EqualError(t, err, "events[0].m0: appears twice", n)
	}
}
