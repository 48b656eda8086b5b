package terminal

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// TimeFlags lets flags of *time.Time be an RFC 3339 time, a date, which is its beginning in UTC, or how long ago it
// was. Kong's own reader takes only the first, and its error shows Go's layout.
func TimeFlags() []kong.Option {
	return []kong.Option{kong.TypeMapper(reflect.TypeFor[*time.Time](),
		kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			var text string
			if err := ctx.Scan.PopValueInto("time", &text); err != nil {
				return err
			}
			at, err := momentIn(text)
			target.Set(reflect.ValueOf(&at))
			return err
		}))}
}

func momentIn(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, ok := agoIn(text); ok {
		return time.Now().Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 1h, 30m or 7d for that long ago, 2026-11-20T09:30:00Z, "+
		"or 2026-11-20 for the beginning of that day in UTC", text)
}

// agoIn reads a duration, which may begin with days: 1h30m, 7d, 1d12h.
func agoIn(text string) (time.Duration, bool) {
	var days int
	if number, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, false
		}
		if days = int(n); rest == "" {
			rest = "0s"
		}
		text = rest
	}
	ago, err := time.ParseDuration(text)
	return ago + time.Duration(days)*24*time.Hour, err == nil && ago >= 0
}

// Time is a time in UTC, to the second.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Clock is the time of day.
func Clock(t time.Time) string { return t.Format("15:04:05") }
