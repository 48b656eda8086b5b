// Package terminal reads and prints what verbs show to people: output formats, values in one line, times, progress and
// confirmations. Its errors of wrong usage give exit code 2.
package terminal

import (
	"bufio"
	"errors"
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

// errNotConfirmed ends a verb whose question was not answered with yes.
var errNotConfirmed = errors.New("nothing was changed")

// ConfirmFlag is for verbs that cannot be undone.
type ConfirmFlag struct {
	Yes bool `help:"Do not ask for confirmation. Required if standard input is not a terminal."`
}

// Confirm asks on a terminal, and requires --yes elsewhere. question says what will be lost; it is not called with
// --yes.
func (f ConfirmFlag) Confirm(question func() (string, error)) error {
	if f.Yes {
		return nil
	}
	if !IsTerminal(os.Stdin) {
		return Usagef("this cannot be undone, and standard input is not a terminal to ask for confirmation on: add --yes")
	}
	text, err := question()
	if err != nil {
		return err
	}
	return AskYes(text)
}

// AskYes asks a question on the terminal. Everything but y and yes means no.
func AskYes(question string) error {
	fmt.Fprintf(os.Stderr, "%s [y/N] ", PlainLines(question))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

// maxFile is as much as a request may have.
const maxFile = 1 << 20

// ReadFileOrInput is ReadUpTo the size that a request may have.
func ReadFileOrInput(name string) ([]byte, error) { return ReadUpTo(name, maxFile) }

// ReadUpTo reads a file, or standard input for -, that has at most so many bytes.
func ReadUpTo(name string, most int64) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case int64(len(body)) > most:
		return nil, Usagef("%s: such a file has at most %d bytes", name, most)
	}
	return body, nil
}

// usageError is an invalid value on the command line or in the environment.
type usageError string

func (e usageError) Error() string { return string(e) }

// Usagef returns an error of wrong usage: exit code 2.
func Usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// IsUsage reports whether an error is one of wrong usage.
func IsUsage(err error) bool { return errors.As(err, new(usageError)) }

// ExitError ends the program with this exit code and prints nothing.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }
