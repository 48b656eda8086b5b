package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/terminal"
)

// checkRanges rejects the first flag whose value is outside the range that its tag declares: range:"1..1000", or
// range:"0.." without an upper limit. Those of durations are in seconds.
func checkRanges(k *kong.Context) error {
	for _, flag := range k.Flags() {
		low, high, declared := strings.Cut(flag.Tag.Get("range"), "..")
		if !declared {
			continue
		}
		var value float64
		unit := ""
		switch v := flag.Target.Interface().(type) {
		case int:
			value = float64(v)
		case float64:
			value = v
		case time.Duration:
			value, unit = v.Seconds(), "s"
		}
		least, err := strconv.ParseFloat(low, 64)
		if err != nil {
			return err
		}
		most, err := strconv.ParseFloat(cmp.Or(high, "inf"), 64)
		if err != nil {
			return err
		}
		if value >= least && value <= most {
			continue
		}
		allowed := "be " + low + unit + terminal.Either(high == "", " or more", " to "+high+unit)
		if low == "0" && high == "" {
			allowed = "not be negative"
		}
		return terminal.Usagef("--%s %v: must %s", flag.Name, flag.Target.Interface(), allowed)
	}
	return nil
}

// addressRange reads flags that are address ranges.
func addressRange(k *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := k.Scan.PopValueInto("address range", &text); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("expected an address range such as 10.0.0.0/8 but got %q", text)
	}
	target.Set(reflect.ValueOf(prefix))
	return nil
}
