package terminal

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// DescribeVerbs adds the tags detail:"A sentence." and example:"user list; user show a" to the help of verbs.
func DescribeVerbs(k *kong.Kong) error {
	for _, leaf := range k.Model.Leaves(false) {
		if detail := leaf.Tag.Get("detail"); detail != "" {
			leaf.Detail = detail + "\n\n"
		}
		examples := strings.Split(leaf.Tag.Get("example"), "; ")
		if examples[0] != "" {
			leaf.Detail += Either(len(examples) == 1, "Example:", "Examples:")
		}
		for _, line := range examples {
			leaf.Detail += Either(line == "", "", "\n  "+k.Model.Name+" "+line)
		}
	}
	return nil
}

// CheckRanges rejects the first flag whose value is outside the range of its tag: range:"1..1000", or range:"0.."
// without an upper limit. Ranges of durations are in seconds.
func CheckRanges(k *kong.Context) error {
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
		least, _ := strconv.ParseFloat(low, 64)
		most, _ := strconv.ParseFloat(cmp.Or(high, "inf"), 64)
		if value >= least && value <= most {
			continue
		}
		allowed := "be " + low + unit + Either(high == "", " or more", " to "+high+unit)
		if low == "0" && high == "" {
			allowed = "not be negative"
		}
		return Usagef("--%s %v: must %s", flag.Name, flag.Target.Interface(), allowed)
	}
	return nil
}
