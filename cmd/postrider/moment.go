package main

import (
	"fmt"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

// moments have a flag that is a time take an RFC 3339 time, or a date, which is its beginning in UTC. Kong's own reader takes only the first, and
// words what it refuses in Go's layout.
func moments() []kong.Option {
	read := func(ctx *kong.DecodeContext) (at time.Time, err error) {
		var text string
		if err = ctx.Scan.PopValueInto("time", &text); err == nil {
			at, err = momentIn(text)
		}
		return at, err
	}
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			at, err := read(ctx)
			target.Set(reflect.ValueOf(at))
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[*time.Time](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			at, err := read(ctx)
			target.Set(reflect.ValueOf(&at))
			return err
		})),
	}
}

func momentIn(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2026-11-20T09:30:00Z, or 2026-11-20 for the beginning of that day in UTC", text)
}
