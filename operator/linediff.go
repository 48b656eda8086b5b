package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// DiffLine is a line of a unified diff. Kind is ' ' (in both), '-' (removed), '+' (added) or '@' (lines are left out).
type DiffLine struct {
	Kind byte
	Text string
}

const (
	// diffContext is how many equal lines a diff shows around a change.
	diffContext = 3
	// diffCells bounds the table of a comparison: 2,000 by 2,000 changed lines take 16 MB.
	diffCells = 4_000_000
)

// DiffJSON compares two events line by line, indented alike. A text that is not JSON is compared as it is.
func DiffJSON(before, after []byte) []DiffLine { return diffLines(indented(before), indented(after)) }

// DiffText is a diff as text.
func DiffText(diff []DiffLine) string {
	var text strings.Builder
	for _, line := range diff {
		if line.Kind == '@' {
			fmt.Fprintf(&text, "@@ %s @@\n", line.Text)
			continue
		}
		fmt.Fprintf(&text, "%c%s\n", line.Kind, line.Text)
	}
	return text.String()
}

// indented is JSON with a member per line. Names, values and their order keep their bytes.
func indented(text []byte) []string {
	var lines bytes.Buffer
	if err := json.Indent(&lines, bytes.TrimSpace(text), "", "  "); err != nil {
		return strings.Split(string(text), "\n")
	}
	return strings.Split(lines.String(), "\n")
}

// diffLines compares the lines between the equal beginning and the equal end.
func diffLines(before, after []string) []DiffLine {
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	var all []DiffLine
	add := func(kind byte, lines []string) {
		for _, line := range lines {
			all = append(all, DiffLine{kind, line})
		}
	}
	add(' ', before[:head])
	all = append(all, compare(before[head:len(before)-tail], after[head:len(after)-tail])...)
	add(' ', before[len(before)-tail:])
	return shorten(all)
}

// compare finds the longest common sequence of lines. Too many lines are shown as replaced.
func compare(before, after []string) (diff []DiffLine) {
	width := len(after) + 1
	if (len(before)+1)*width > diffCells {
		return replaced(before, after)
	}
	common := make([]int32, (len(before)+1)*width) // of the lines from i and from j on
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if before[i] == after[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(before) && j < len(after) {
		switch {
		case before[i] == after[j]:
			diff = append(diff, DiffLine{' ', before[i]})
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			diff = append(diff, DiffLine{'-', before[i]})
			i++
		default:
			diff = append(diff, DiffLine{'+', after[j]})
			j++
		}
	}
	return append(diff, replaced(before[i:], after[j:])...)
}

func replaced(before, after []string) (diff []DiffLine) {
	for _, line := range before {
		diff = append(diff, DiffLine{'-', line})
	}
	for _, line := range after {
		diff = append(diff, DiffLine{'+', line})
	}
	return diff
}

// shorten leaves out equal lines that are far from a change.
func shorten(all []DiffLine) (diff []DiffLine) {
	near := make([]bool, len(all))
	for i := range all {
		for j := max(0, i-diffContext); all[i].Kind != ' ' && j <= min(len(all)-1, i+diffContext); j++ {
			near[j] = true
		}
	}
	for i := 0; i < len(all); {
		if near[i] {
			diff = append(diff, all[i])
			i++
			continue
		}
		from := i
		for i < len(all) && !near[i] {
			i++
		}
		plural := "s"
		if i-from == 1 {
			plural = ""
		}
		diff = append(diff, DiffLine{'@', fmt.Sprintf("%d equal line%s", i-from, plural)})
	}
	return diff
}
