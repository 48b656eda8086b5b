package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// ProgressLine is one line of a terminal that tells how far something is, rewritten in place. Where nobody looks it is
// silent.
type ProgressLine struct {
	out   io.Writer // nil where nobody looks
	shown time.Time
}

// NewProgressLine is a line on standard error, if that is a terminal.
func NewProgressLine() *ProgressLine {
	if !OnTerminal() {
		return &ProgressLine{}
	}
	return &ProgressLine{out: os.Stderr}
}

// showInterval is between two changes of the progress line: more often nobody can read it.
const showInterval = 250 * time.Millisecond

// Show rewrites the line, unless it was changed a moment ago. Only then is it asked for: somebody may be told a million
// times.
func (p *ProgressLine) Show(text func() string) {
	if p.out == nil || time.Since(p.shown) < showInterval {
		return
	}
	p.shown = time.Now()
	fmt.Fprint(p.out, clearLine+text())
}

// End takes the line away: what came of it is printed elsewhere.
func (p *ProgressLine) End() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprint(p.out, clearLine)
	}
}

// clearLine takes a terminal back to the beginning of an empty line.
const clearLine = "\r\x1b[K"

// OnTerminal reports whether standard error is a terminal.
func OnTerminal() bool { return IsTerminal(os.Stderr) }

// IsTerminal reports whether a person is at the other end. The null device is of the same kind as a terminal.
func IsTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

const progressWidth = 24

// Bar is how much is done, where that is known.
func Bar[N int | int64](done, all N) string {
	if all <= 0 {
		return ""
	}
	full := int(min(done*progressWidth/all, progressWidth))
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", progressWidth-full) + "] "
}

// Await does something that may take long. After a second a line of the terminal says what is waited for.
func Await(what string, do func() error) error {
	line := NewProgressLine()
	defer line.End()
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			line.Show(func() string { return fmt.Sprintf("waiting until %s: %.0f s", what, time.Since(began).Seconds()) })
		}
	}
}
