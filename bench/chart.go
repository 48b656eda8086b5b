package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

type chartCmd struct {
	Files []string `arg:"" help:"Reports of held (-o json), one for each line of the chart." placeholder:"FILE"`
}

// Run prints an SVG image.
func (c *chartCmd) Run() error {
	reports := make([]heldReport, len(c.Files))
	for i, name := range c.Files {
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &reports[i])
		}
		if err == nil && len(reports[i].Rows) == 0 {
			err = errors.New("it is not a report of held")
		}
		if err != nil {
			return fmt.Errorf("read the report %s: %w", name, err)
		}
	}
	return drawChart(os.Stdout, reports)
}

// The image has no background: its colors are readable on white and on dark pages. Lines differ in their dashes, too.
var chartLines = []string{`#d55e00`, `#0086d1" stroke-dasharray="8 3`, `#a864a8" stroke-dasharray="2 3`, `#808080`}

const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 440" role="img" aria-labelledby="t d"
font-family="sans-serif" font-size="13" fill="#808080">
<title id="t">Figures during and after a long transaction</title>
<desc id="d">%s</desc>
`

// drawChart draws the p99 and the dead rows of each report over the minutes since the hold began.
func drawChart(out io.Writer, reports []heldReport) error {
	var svg, spoken strings.Builder
	var first, last, released float64
	for _, r := range reports {
		for _, w := range r.Rows {
			first, last = min(first, w.Minute), max(last, w.Minute)
			if w.Phase == "held" {
				released = max(released, w.Minute)
			}
		}
		fmt.Fprintf(&spoken, "%s: the p99 of the hold's last part is %g times that of its first. ", r.Kind, r.Ratios["p99"])
	}
	x := func(minute float64) float64 { return 60 + 560*(minute-first)/(last-first) }
	panel := func(top float64, title string, value func(w *heldRow) float64) {
		highest := 1.0
		for _, r := range reports {
			for _, w := range r.Rows {
				highest = max(highest, value(w))
			}
		}
		fmt.Fprintf(&svg, `<rect x="%.0f" y="%.0f" width="%.0f" height="150" fill-opacity=".15"/>`+
			`<text x="60" y="%.0f" font-weight="bold">%s</text>`+"\n", x(0), top, x(released)-x(0), top-10, title)
		for _, part := range []float64{0, 0.5, 1} {
			fmt.Fprintf(&svg, `<path d="M60 %[1]gh560" stroke="#808080" stroke-opacity=".4"/>`+
				`<text x="54" y="%[2]g" text-anchor="end">%.4[3]g</text><text x="%.0[4]f" y="%[5]g">%.3[6]g</text>`+"\n",
				top+150-150*part, top+154-150*part, part*highest, x(released*part)-8, top+168, released*part)
		}
		for i, r := range reports {
			var points strings.Builder
			for _, w := range r.Rows {
				fmt.Fprintf(&points, "%.1f,%.1f ", x(w.Minute), top+150-150*value(w)/highest)
			}
			key := top + 20 + 20*float64(i)
			fmt.Fprintf(&svg, `<polyline points="%s" fill="none" stroke-width="2" stroke="%s"/>`+
				`<path d="M630 %[3]gh24" stroke-width="2" stroke="%[2]s"/><text x="660" y="%[4]g">%[5]s</text>`+"\n",
				strings.TrimSpace(points.String()), chartLines[i%len(chartLines)], key, key+4, r.Kind)
		}
	}
	panel(30, "p99 from publish to receipt, ms; gray: the minutes of the hold",
		func(w *heldRow) float64 { return w.Latency["p99"] })
	panel(250, "Dead rows, thousands", func(w *heldRow) float64 { return float64(w.Dead) / 1000 })
	_, err := fmt.Fprintf(out, chartHead+"%s</svg>\n", spoken.String(), svg.String())
	return err
}
